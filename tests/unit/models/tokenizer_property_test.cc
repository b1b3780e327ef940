// Properties of tokenizers on random text. The seed is fixed and printed with a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <random>

#include "base/mapped_file.h"
#include "models/gguf.h"
#include "models/gguf_tokenizer.h"
#include "models/tokenizer/pre_tokenizer.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"
#include "tests/support/test_data.h"
#include "tests/unit/models/tokenizer_test_vocabulary.h"

namespace headroom::models {
namespace {

constexpr uint32_t kSeed = 20240607;

// Fragments that patterns, special pieces and UTF-8 decoding take note of.
const char* const kFragments[] = {
    "hello",        " ",
    "  ",           "\n",
    "\r\n",         "'s",
    "'RE",          "12345",
    "<|end|>",      "<|",
    "|>",           "<tool>",
    "<s>",          "</s>",
    "<0x0A>",       "abc",
    "\xC3\xB8",     "\xC3",
    "\xA9",         "\xFF",
    "\xF0\x9F\x98", "\x80",
    "\xE2\x96\x81", "\xE3\x80\x80",
    "\xE6\x88\x91", "\xF0\x9F\x98\x80",
    "\xED\xA0\x80", "...",
    "\t",           "a b",
};

std::string RandomText(std::mt19937& random, int num_fragments) {
  std::string text;
  for (int i = 0; i < num_fragments; ++i) {
    if (random() % 4 == 0) {
      text.push_back(static_cast<char>(random()));
    } else if (random() % 8 == 0) {
      char32_t code_point = random() % 0x110000;
      AppendUtf8(code_point >= 0xD800 && code_point < 0xE000 ? 'x' : code_point, &text);
    } else {
      text += kFragments[random() % std::size(kFragments)];
    }
  }
  return text;
}

// Replacement decoding in one go, by its definition: shares no code with the tokenizers.
std::string ReplaceDecode(const std::string& bytes) {
  auto byte = [&](size_t i) {
    return i < bytes.size() ? static_cast<int>(static_cast<uint8_t>(bytes[i])) : -1;
  };
  auto in = [](int value, int low, int high) { return value >= low && value <= high; };
  std::string text;
  for (size_t i = 0; i < bytes.size();) {
    const int lead = byte(i);
    const int length = lead < 0x80            ? 1
                       : in(lead, 0xC2, 0xDF) ? 2
                       : in(lead, 0xE0, 0xEF) ? 3
                       : in(lead, 0xF0, 0xF4) ? 4
                                              : 0;
    int good = length == 0 ? 0 : 1;
    while (good > 0 && good < length) {
      const int low = good > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
      const int high = good > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
      if (!in(byte(i + good), low, high)) {
        break;
      }
      ++good;
    }
    text += good == length && length > 0 ? bytes.substr(i, good) : "\xEF\xBF\xBD";
    i += std::max(good, 1);
  }
  return text;
}

std::string Bytes(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    bytes += tokenizer.TokenBytes(id);
  }
  return bytes;
}

std::vector<std::unique_ptr<Tokenizer>> AllTokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-llm"}) {
    TokenizerData data = ByteLevelData();
    data.pre = pre;
    tokenizers.push_back(std::move(CreateTokenizer(std::move(data))).value());
  }
  for (const bool add_space_prefix : {false, true}) {
    TokenizerData data = SentencePieceData();
    data.add_space_prefix = add_space_prefix;
    tokenizers.push_back(std::move(CreateTokenizer(std::move(data))).value());
  }
  tokenizers.push_back(CreateByteTokenizer({"<s>", "<|end|>"}, 0, 1));
  return tokenizers;
}

// What decoding must give back: "llama" turns U+2581 into a space and may add one in front.
std::string Expected(const Tokenizer& tokenizer, std::string_view text) {
  const bool is_llama = tokenizer.Type(0) == TokenType::kUnknown;
  std::string expected(tokenizer.strips_leading_space() && !text.empty() ? 1 : 0, ' ');
  for (size_t position = 0; position < text.size();) {
    if (is_llama && text.substr(position, kVisibleSpace.size()) == kVisibleSpace) {
      expected.push_back(' ');
      position += kVisibleSpace.size();
    } else {
      expected.push_back(text[position++]);
    }
  }
  return expected;
}

TEST(TokenizerPropertyTest, DecodingGivesBackEveryMessage) {
  for (const auto& tokenizer : AllTokenizers()) {
    std::mt19937 random(kSeed);
    for (int i = 0; i < 1000; ++i) {
      // Well-formed or not: every byte has a token.
      std::string text = RandomText(random, 1 + static_cast<int>(random() % 30));
      const std::vector<int32_t> ids = tokenizer->Encode(text, false, false);
      ASSERT_EQ(Bytes(*tokenizer, ids), Expected(*tokenizer, text)) << "seed " << kSeed << " " << i;
    }
  }
}

TEST(TokenizerPropertyTest, DetokenizerOutputIsTheReplacementDecodingOfAllBytes) {
  for (const auto& tokenizer : AllTokenizers()) {
    std::mt19937 random(kSeed);
    for (int i = 0; i < 1000; ++i) {
      std::vector<int32_t> ids;
      for (int k = static_cast<int>(random() % 40); k > 0; --k) {
        ids.push_back(static_cast<int32_t>(random() % (tokenizer->vocab_size() + 2)) - 1);
      }
      IncrementalDetokenizer detokenizer(*tokenizer);
      std::string text;
      for (const int32_t id : ids) {
        const std::string part = detokenizer.Add(id);
        ASSERT_EQ(ReplaceDecode(part), part);  // whole characters only
        text += part;
      }
      text += detokenizer.Flush();
      ASSERT_EQ(text, ReplaceDecode(Bytes(*tokenizer, ids))) << "seed " << kSeed << " " << i;
    }
  }
}

// Splits random text into template and message parts; checks what each token says of its origin.
TEST(TokenizerPropertyTest, MessagesNeverBecomeControlTokensAndProvenanceIsExact) {
  for (const auto& tokenizer : AllTokenizers()) {
    std::mt19937 random(kSeed);
    for (int i = 0; i < 1000; ++i) {
      ProvenancedText text;
      bool is_message = random() % 2 == 0;
      std::vector<bool> message_bytes;
      for (int part = 0; part < 6; ++part, is_message = !is_message) {
        const auto begin = static_cast<int64_t>(text.text.size());
        text.text += RandomText(random, static_cast<int>(random() % 6));
        message_bytes.resize(text.text.size(), is_message);
        if (is_message && begin < static_cast<int64_t>(text.text.size())) {
          text.message_ranges.push_back({begin, static_cast<int64_t>(text.text.size())});
        }
      }
      const Encoding encoding = tokenizer->Encode(text);
      ASSERT_EQ(encoding.ids.size(), encoding.from_message.size());
      bool any_message = false;
      for (size_t k = 0; k < encoding.ids.size(); ++k) {
        any_message |= encoding.from_message[k] != 0;
        const TokenType type = tokenizer->Type(encoding.ids[k]);
        const bool is_markup =
            type == TokenType::kControl || type == TokenType::kUnknown ||
            (type == TokenType::kUserDefined && tokenizer->TokenPiece(encoding.ids[k])[0] == '<');
        ASSERT_FALSE(is_markup && encoding.from_message[k]) << "seed " << kSeed << " " << i;
      }
      ASSERT_EQ(any_message, !text.message_ranges.empty());
      // Byte by byte where every token is the text's own bytes.
      if (tokenizer->Type(0) == TokenType::kUnknown) {
        continue;
      }
      size_t position = 0;
      for (size_t k = 0; k < encoding.ids.size(); ++k) {
        const std::string_view piece = tokenizer->TokenBytes(encoding.ids[k]).empty()
                                           ? tokenizer->TokenPiece(encoding.ids[k])
                                           : tokenizer->TokenBytes(encoding.ids[k]);
        ASSERT_EQ(text.text.substr(position, piece.size()), piece);
        bool has_message = false;
        for (size_t b = position; b < position + piece.size(); ++b) {
          has_message |= message_bytes[b];
        }
        ASSERT_EQ(encoding.from_message[k] != 0, has_message) << "seed " << kSeed << " " << i;
        position += piece.size();
      }
      ASSERT_EQ(position, text.text.size());
    }
  }
}

std::string Repeat(const std::string& unit, size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) {
    text += unit;
  }
  return text;
}

// At a million bytes a quadratic scanner or merger takes at least half a trillion steps: the
// test's time limit ends it, whatever the machine.
constexpr size_t kLongBytes = 1'000'000;

TEST(TokenizerPropertyTest, ScanningIsLinearInLongRuns) {
  for (const PreTokenizerKind kind :
       {PreTokenizerKind::kGpt2, PreTokenizerKind::kSmolLm, PreTokenizerKind::kLlama3,
        PreTokenizerKind::kQwen2, PreTokenizerKind::kDeepSeekLlm}) {
    for (const char* unit : {"l", "\n", " ", "\n ", "\r", "7", "<", "'", "\xFF", "\xE3\x80\x80",
                             "hello ", "\xE2\x96\x81", "\xC2\xBD", "\xE6\x88\x91"}) {
      const std::string text = Repeat(unit, kLongBytes);
      std::vector<size_t> ends;
      PreTokenize(kind, text, &ends);
      ASSERT_EQ(ends.back(), text.size());
    }
  }
}

TEST(TokenizerPropertyTest, MergingIsNearlyLinearInLongRuns) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(std::move(CreateTokenizer(ByteLevelData())).value());
  tokenizers.push_back(std::move(CreateTokenizer(SentencePieceData())).value());
  for (const auto& tokenizer : tokenizers) {
    for (const char* unit : {"l", "hello", "\xE2\x96\x81", "<tool>"}) {
      ASSERT_FALSE(tokenizer->Encode(Repeat(unit, kLongBytes), false, false).empty());
    }
    ASSERT_FALSE(tokenizer->Encode(Repeat("<|end|><tool", kLongBytes), false, true).empty());
  }
}

// Message ranges are walked once, not once for each token or special piece.
TEST(TokenizerPropertyTest, ManyMessageRangesAreNoMoreWork) {
  const auto tokenizer = std::move(CreateTokenizer(ByteLevelData())).value();
  ProvenancedText text;
  text.text = Repeat("<|end|>x", kLongBytes);
  for (int64_t i = 7; i < static_cast<int64_t>(text.text.size()); i += 8) {
    text.message_ranges.push_back({i, i + 1});
  }
  const Encoding encoding = tokenizer->Encode(text);
  ASSERT_EQ(encoding.ids.size(), text.text.size() / 4);
  EXPECT_EQ(encoding.from_message[0], 0);
  EXPECT_EQ(encoding.from_message[1], 1);
}

// Real vocabularies on every kind of text at once.
TEST(TokenizerPropertyTest, PublishedVocabulariesGiveBackRandomUnicode) {
  const std::optional<std::string> probe = testing::SharedDataPath("tokenizers/gpt-2.vocab.gguf");
  if (!probe.has_value()) {
    GTEST_SKIP() << "no shared data: tokenizers/gpt-2.vocab.gguf";
  }
  for (const char* name : {"gpt-2", "deepseek-llm", "llama-spm"}) {
    const std::string path =
        *testing::SharedDataPath(std::string("tokenizers/") + name + ".vocab.gguf");
    const auto file = std::move(MappedFile::Open(path)).value();
    const GgufFile gguf = std::move(GgufFile::Parse(file->bytes(), path)).value();
    TokenizerData data = std::move(ReadGgufTokenizer(gguf)).value().value();
    const auto tokenizer = std::move(CreateTokenizer(std::move(data))).value();
    std::mt19937 random(kSeed);
    for (int i = 0; i < 300; ++i) {
      const std::string text = ReplaceDecode(RandomText(random, 40));
      ASSERT_EQ(Bytes(*tokenizer, tokenizer->Encode(text, false, false)),
                Expected(*tokenizer, text))
          << name << " seed " << kSeed << " " << i;
    }
  }
}

}  // namespace
}  // namespace headroom::models
