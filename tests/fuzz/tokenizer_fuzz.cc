// Two parts of the input: a vocabulary (with merges, types and scores), then text in template and
// message parts. Whatever they hold: no crash, no control token from a message, whole UTF-8 out.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"
#include "tests/unit/models/tokenizer_test_vocabulary.h"

namespace headroom::models {
namespace {

// Hands the input out piece by piece; zeros and empty strings at its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Byte() {
    if (size_ == 0) {
      return 0;
    }
    --size_;
    return *data_++;
  }
  std::string String(size_t max_bytes) {
    std::string text;
    for (size_t num_bytes = Byte() % (max_bytes + 1); num_bytes > 0 && size_ > 0; --num_bytes) {
      text.push_back(static_cast<char>(Byte()));
    }
    return text;
  }
  bool empty() const { return size_ == 0; }

 private:
  const uint8_t* data_;
  size_t size_;
};

TokenizerData MakeData(Input& input) {
  const uint8_t choice = input.Byte();
  TokenizerData data = choice % 2 == 0 ? ByteLevelData() : SentencePieceData();
  static const char* const kPres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-llm", "?"};
  if (choice % 2 == 0) {
    data.pre = kPres[choice / 2 % std::size(kPres)];
  }
  for (int extra = input.Byte() % 8; extra > 0; --extra) {
    data.tokens.push_back(input.String(8));
    data.token_types.push_back(static_cast<TokenType>(input.Byte() % 7));
    if (!data.scores.empty()) {
      data.scores.push_back(static_cast<float>(static_cast<int8_t>(input.Byte())));
    }
  }
  for (int extra = input.Byte() % 4; extra > 0; --extra) {
    data.merges.push_back(input.String(8));
  }
  data.add_space_prefix = input.Byte() % 2 == 0;
  data.eos_id = static_cast<int8_t>(input.Byte());
  return data;
}

ProvenancedText MakeText(Input& input) {
  ProvenancedText text;
  for (bool is_message = input.Byte() % 2 == 0; !input.empty(); is_message = !is_message) {
    const auto begin = static_cast<int64_t>(text.text.size());
    text.text += input.String(40);
    if (is_message) {
      text.message_ranges.push_back({begin, static_cast<int64_t>(text.text.size())});
    }
  }
  return text;
}

void CheckWellFormed(const std::string& text) {
  for (size_t position = 0; position < text.size();) {
    const Utf8Char c = DecodeUtf8(text, position);
    HEADROOM_CHECK(c.result == Utf8Result::kCharacter);
    position += static_cast<size_t>(c.num_bytes);
  }
}

void Run(Input input) {
  StatusOr<std::unique_ptr<Tokenizer>> created = CreateTokenizer(MakeData(input));
  if (!created.ok()) {
    created = CreateTokenizer(ByteLevelData());
    HEADROOM_CHECK(created.ok());
  }
  const Tokenizer& tokenizer = **created;
  const Encoding encoding = tokenizer.Encode(MakeText(input));
  HEADROOM_CHECK(encoding.ids.size() == encoding.from_message.size());
  IncrementalDetokenizer detokenizer(tokenizer, false);
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    HEADROOM_CHECK(encoding.ids[i] >= 0 && encoding.ids[i] < tokenizer.vocab_size());
    HEADROOM_CHECK(encoding.from_message[i] == 0 ||
                   tokenizer.Type(encoding.ids[i]) != TokenType::kControl);
    CheckWellFormed(detokenizer.Add(encoding.ids[i]));
  }
  CheckWellFormed(detokenizer.Flush());
}

}  // namespace
}  // namespace headroom::models

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headroom::models::Run(headroom::models::Input(data, size));
  return 0;
}
