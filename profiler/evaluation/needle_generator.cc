#include "profiler/evaluation/needle_generator.h"

#include <algorithm>
#include <numeric>

#include "models/tokenizer/utf8.h"
#include "profiler/evaluation/draws.h"

namespace headroom::profiler {
namespace {

// The vocabulary of the needle models.
constexpr int32_t kFirstKey = 256;
constexpr int32_t kFirstValue = 384;
constexpr int32_t kNumSymbols = 120;  // keys, and as many values
constexpr int32_t kAlias = 509;
constexpr int32_t kBos = 510;
constexpr int32_t kQuery = 511;
constexpr int32_t kVocabSize = 512;
constexpr int32_t kValuesPerRecord = 3;
constexpr int32_t kShortest = 64;

using Record = std::vector<int32_t>;

std::vector<int32_t> AsciiIds(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 128) {
      ids.push_back(c);
    }
  }
  return ids;
}

// `num_tokens` of running text with the records at random places in random order; where the record
// `wanted` begins.
struct Hidden {
  std::vector<int32_t> tokens;
  int32_t wanted_begin = 0;
};
Hidden Hide(Draws& draws, const std::vector<int32_t>& text, std::vector<Record> records,
            const Record& wanted, int32_t num_tokens) {
  draws.Shuffle(records);
  int32_t num_text = num_tokens;
  for (const Record& record : records) {
    num_text -= static_cast<int32_t>(record.size());
  }
  const int64_t start = draws.Below(static_cast<int64_t>(text.size()) - num_text);
  std::vector<int64_t> cuts;
  for (size_t i = 0; i < records.size(); ++i) {
    cuts.push_back(draws.Below(num_text + 1));
  }
  std::sort(cuts.begin(), cuts.end());
  Hidden hidden;
  int64_t taken = 0;
  const auto take_until = [&](int64_t end) {
    hidden.tokens.insert(hidden.tokens.end(), text.begin() + start + taken,
                         text.begin() + start + end);
    taken = end;
  };
  for (size_t i = 0; i < records.size(); ++i) {
    take_until(cuts[i]);
    if (records[i] == wanted) {
      hidden.wanted_begin = static_cast<int32_t>(hidden.tokens.size());
    }
    hidden.tokens.insert(hidden.tokens.end(), records[i].begin(), records[i].end());
  }
  take_until(num_text);
  return hidden;
}

NeedlePrompt MakeIdNeedle(Draws& draws, const std::vector<int32_t>& text, bool two_hops,
                          int32_t length) {
  const int32_t fewest = two_hops ? 2 : 1;
  const int32_t most = std::min(kNumSymbols / 2, std::max(3, length / (two_hops ? 64 : 48)));
  const auto num_records = static_cast<int32_t>(fewest + draws.Below(most - fewest + 1));
  std::vector<int32_t> keys(kNumSymbols);
  std::iota(keys.begin(), keys.end(), kFirstKey);
  draws.Shuffle(keys);
  std::vector<Record> records;
  for (int32_t i = 0; i < num_records; ++i) {
    Record record = {keys[static_cast<size_t>(i)]};
    for (int32_t v = 0; v < kValuesPerRecord; ++v) {
      record.push_back(kFirstValue + static_cast<int32_t>(draws.Below(kNumSymbols)));
    }
    records.push_back(std::move(record));
  }
  const auto asked = static_cast<size_t>(draws.Below(num_records));
  const Record wanted = records[asked];
  NeedlePrompt prompt;
  std::vector<int32_t> question = {kQuery, wanted[0]};
  prompt.answer.assign(wanted.begin() + 1, wanted.end());
  if (two_hops) {
    // Keys behind those of the records are their aliases.
    for (size_t i = 0; i < static_cast<size_t>(num_records); ++i) {
      records.push_back({keys[static_cast<size_t>(num_records) + i], kAlias, keys[i]});
    }
    question[1] = keys[static_cast<size_t>(num_records) + asked];
    prompt.answer = wanted;
    prompt.answer.insert(prompt.answer.begin(), kAlias);
  }
  const int32_t num_context = length - static_cast<int32_t>(question.size() + prompt.answer.size());
  Hidden hidden = Hide(draws, text, records, wanted, num_context - 1);
  prompt.length = length;
  prompt.depth = static_cast<double>(1 + hidden.wanted_begin) / num_context;
  prompt.ids = {kBos};
  prompt.ids.insert(prompt.ids.end(), hidden.tokens.begin(), hidden.tokens.end());
  prompt.split = static_cast<int32_t>(prompt.ids.size());
  prompt.ids.insert(prompt.ids.end(), question.begin(), question.end());
  prompt.content_end = static_cast<int32_t>(prompt.ids.size());
  return prompt;
}

constexpr const char* kPlaces[] = {"Helsinki", "Nairobi", "Lisbon",  "Ottawa",   "Zagreb", "Hanoi",
                                   "Dakar",    "Quito",   "Tallinn", "Canberra", "Muscat", "Riga",
                                   "Bogota",   "Sofia",   "Kigali",  "Bern"};
// Most of them are no numbers to a reader: an answer that a model would expect without the text
// says little of what it fetched.
constexpr const char* kThings[] = {"magic word",  "access key",   "safe combination",
                                   "pass phrase", "lucky number", "hidden message",
                                   "vault code",  "call sign"};

// Whole UTF-8 text from the bytes of tokens: an unfinished character at the end is dropped.
std::string WholeText(const models::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    text += tokenizer.TokenBytes(id);
  }
  for (size_t i = 0; i < text.size();) {
    const models::Utf8Char character = models::DecodeUtf8(text, i);
    if (character.result == models::Utf8Result::kTruncated) {
      text.resize(i);
    }
    i += static_cast<size_t>(character.num_bytes);
  }
  return text;
}

// One past the last end of a sentence at or before byte `at`; 0 when there is none.
size_t SentenceBegin(const std::string& text, size_t at) {
  const size_t stop = text.rfind(". ", at);
  return stop == std::string::npos ? 0 : stop + 2;
}

class TextNeedleMaker {
 public:
  TextNeedleMaker(const TextFormat& format, std::string_view text, const NeedleRequest& request)
      : format_(format), text_(text), request_(request) {}

  StatusOr<TextNeedle> Make(int32_t index) {
    TextNeedle needle;
    needle.id = fmt::format("text-{}-{}-{}", request_.length, request_.seed, index);
    needle.length = request_.length;
    Draws draws(request_.seed, needle.id);
    const std::string subject = fmt::format("{} for {}", kThings[draws.Below(std::size(kThings))],
                                            kPlaces[draws.Below(std::size(kPlaces))]);
    for (int i = 0; i < 4; ++i) {
      needle.answer += static_cast<char>('0' + draws.Below(10));
    }
    const std::string sentence = fmt::format("The {} is {}. ", subject, needle.answer);
    needle.question = fmt::format("\n\nWhat is the {}?", subject);
    // Depths cover [0, 1): one prompt in each of `count` equal parts.
    const double depth = (index + draws.Uniform()) / request_.count;
    HEADROOM_ASSIGN_OR_RETURN(const SplitPrompt bare,
                              EncodePrompt(format_, sentence, needle.question));
    const int64_t num_filler = request_.length - static_cast<int64_t>(bare.ids.size());
    if (num_filler < 16) {
      return InvalidArgument("--needle-length: got {}, wanted room for the question and 16 tokens",
                             request_.length);
    }
    HEADROOM_ASSIGN_OR_RETURN(const std::string filler, Filler(draws, num_filler));
    const auto at = static_cast<size_t>(depth * static_cast<double>(filler.size()));
    const size_t begin = SentenceBegin(filler, at);
    needle.context = filler.substr(0, begin) + sentence + filler.substr(begin);
    needle.depth = static_cast<double>(begin) / static_cast<double>(filler.size());
    return needle;
  }

 private:
  // Running text of `num_tokens` tokens from a random place on.
  StatusOr<std::string> Filler(Draws& draws, int64_t num_tokens) {
    // Long words: no tokenizer needs more than this.
    const auto span = static_cast<size_t>(num_tokens) * 12;
    if (text_.size() <= span) {
      return InvalidArgument("--haystack: {} bytes of text, wanted more than {} for {} tokens",
                             text_.size(), span, request_.length);
    }
    auto begin = static_cast<size_t>(draws.Below(static_cast<int64_t>(text_.size() - span)));
    begin = std::min(text_.find(' ', begin), text_.size() - span - 1) + 1;
    std::vector<int32_t> ids =
        format_.tokenizer.Encode(text_.substr(begin, span), /*add_bos=*/false,
                                 /*parse_special=*/false);
    if (ids.size() < static_cast<size_t>(num_tokens)) {
      return InvalidArgument("--haystack: {} bytes gave {} tokens, wanted {}", span, ids.size(),
                             num_tokens);
    }
    ids.resize(static_cast<size_t>(num_tokens));
    return WholeText(format_.tokenizer, ids);
  }

  const TextFormat& format_;
  const std::string_view text_;
  const NeedleRequest& request_;
};

}  // namespace

StatusOr<std::vector<NeedlePrompt>> MakeIdNeedles(std::string_view task, std::string_view text,
                                                  const NeedleRequest& request,
                                                  int32_t vocab_size) {
  if (vocab_size != kVocabSize) {
    return InvalidArgument(
        "--make-needles {}: made for the needle models' vocabulary of {}; this model's has {}",
        task, kVocabSize, vocab_size);
  }
  if (request.length < kShortest) {
    return InvalidArgument("--needle-length: got {}, wanted at least {}", request.length,
                           kShortest);
  }
  const std::vector<int32_t> ids = AsciiIds(text);
  if (ids.size() <= static_cast<size_t>(request.length)) {
    return InvalidArgument("--haystack: {} ASCII bytes of text, wanted more than {}", ids.size(),
                           request.length);
  }
  Draws draws(request.seed, fmt::format("{}/{}", task, request.length));
  std::vector<NeedlePrompt> prompts;
  for (int32_t i = 0; i < request.count; ++i) {
    prompts.push_back(MakeIdNeedle(draws, ids, task == "2hop", request.length));
    prompts.back().id = fmt::format("{}-{}-{}-{}", task, request.length, request.seed, i);
  }
  return prompts;
}

StatusOr<std::vector<TextNeedle>> MakeTextNeedles(const TextFormat& format, std::string_view text,
                                                  const NeedleRequest& request) {
  TextNeedleMaker maker(format, text, request);
  std::vector<TextNeedle> needles;
  for (int32_t i = 0; i < request.count; ++i) {
    HEADROOM_ASSIGN_OR_RETURN(TextNeedle needle, maker.Make(i));
    needles.push_back(std::move(needle));
  }
  return needles;
}

void AddCandidates(std::vector<NeedlePrompt>& prompts, int32_t num_candidates, uint64_t seed) {
  const auto tail = [](const NeedlePrompt& prompt) {
    return std::vector<int32_t>(prompt.answer.begin() + 1, prompt.answer.end());
  };
  for (NeedlePrompt& prompt : prompts) {
    if (num_candidates < 2 || prompt.answer.size() < 2) {
      continue;
    }
    std::vector<size_t> others(prompts.size());
    std::iota(others.begin(), others.end(), size_t{0});
    Draws draws(seed, prompt.id);
    draws.Shuffle(others);
    prompt.lead = {prompt.answer.front()};
    prompt.candidates = {tail(prompt)};
    for (const size_t other : others) {
      if (prompt.candidates.size() >= static_cast<size_t>(num_candidates)) {
        break;
      }
      if (prompts[other].answer.size() == prompt.answer.size() &&
          std::find(prompt.candidates.begin(), prompt.candidates.end(), tail(prompts[other])) ==
              prompt.candidates.end()) {
        prompt.candidates.push_back(tail(prompts[other]));
      }
    }
    if (prompt.candidates.size() < 2) {
      prompt.lead.clear();
      prompt.candidates.clear();
    }
  }
}

}  // namespace headroom::profiler
