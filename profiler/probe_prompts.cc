#include "profiler/probe_prompts.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "models/tokenizer/utf8.h"
#include "profiler/evaluation/draws.h"

namespace headroom::profiler {
namespace {

// Far from the evaluation's own wording, so that what is measured there was not profiled on.
constexpr std::array kSubjects = {"Marlow", "Ingrid", "Tobias", "Selma",   "Rufus",  "Odile",
                                  "Casper", "Nadia",  "Viktor", "Henrike", "Pascal", "Livia"};
constexpr std::array kObjects = {"safe combination", "flight number", "seat number",
                                 "meter reading",    "bus line",      "invoice number"};
constexpr size_t kCodeDigits = 4;
constexpr int32_t kFewestFiller = 32;  // tokens of text around a needle

struct Needle {
  std::string object;
  std::string subject;
  std::string code;
  std::string Sentence() const {
    return fmt::format("Note that the {} of {} is {}. ", object, subject, code);
  }
  std::string Question() const { return fmt::format("\n\nWhat is the {} of {}?", object, subject); }
  std::string Lead() const { return fmt::format("The {} of {} is", object, subject); }
};

// The bytes of a prompt's tokens, strung together.
class TokenText {
 public:
  TokenText(const models::Tokenizer& tokenizer, std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      text_ += tokenizer.TokenBytes(id);
      ends_.push_back(text_.size());
    }
  }
  size_t Find(const std::string& part) const { return text_.find(part); }
  // Tokens that hold a byte of [begin, end).
  TokenSpan Tokens(size_t begin, size_t end) const {
    const auto first = std::upper_bound(ends_.begin(), ends_.end(), begin);
    const auto last = std::lower_bound(first, ends_.end(), end);
    return {static_cast<int32_t>(first - ends_.begin()),
            static_cast<int32_t>(last - ends_.begin()) + 1};
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;  // byte behind each token
};

bool HasDigit(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

class TextProbeMaker {
 public:
  TextProbeMaker(const TextFormat& format, std::span<const std::vector<int32_t>> fillers,
                 const ProbeRequest& request)
      : format_(format), fillers_(fillers), request_(request) {}

  StatusOr<ProbePrompt> Make(int32_t index) {
    ProbePrompt probe;
    probe.kind = "needle";
    probe.id = fmt::format("probe-{}-{}-{}", request_.length, request_.seed, index);
    Draws draws(request_.seed, probe.id);
    const std::vector<Needle> needles = DrawNeedles(draws);
    const Needle& asked = needles.front();
    HEADROOM_ASSIGN_OR_RETURN(const std::string context, MakeContext(draws, needles, index));
    HEADROOM_ASSIGN_OR_RETURN(const SplitPrompt prompt,
                              EncodePrompt(format_, context, asked.Question()));
    probe.ids = prompt.ids;
    return WithAnswer(std::move(probe), asked, prompt.split);
  }

 private:
  // The first is asked for. No two share both words.
  std::vector<Needle> DrawNeedles(Draws& draws) const {
    std::vector<std::string> subjects(kSubjects.begin(), kSubjects.end());
    draws.Shuffle(subjects);
    std::vector<Needle> needles(static_cast<size_t>(
        std::clamp<int64_t>(request_.num_needles, 1, static_cast<int64_t>(subjects.size()))));
    for (size_t i = 0; i < needles.size(); ++i) {
      needles[i].subject = subjects[i];
      needles[i].object = kObjects[static_cast<size_t>(draws.Below(kObjects.size()))];
      for (size_t digit = 0; digit < kCodeDigits; ++digit) {
        needles[i].code += static_cast<char>('0' + draws.Below(10));
      }
    }
    return needles;
  }

  // Text of prompts from a random one on, cut at random.
  StatusOr<std::string> Filler(Draws& draws, int64_t num_tokens) const {
    std::vector<int32_t> ids;
    const auto wanted = static_cast<size_t>(num_tokens);
    const auto first = static_cast<size_t>(draws.Below(static_cast<int64_t>(fillers_.size())));
    for (size_t i = 0; i < fillers_.size() && ids.size() < wanted; ++i) {
      const std::vector<int32_t>& filler = fillers_[(first + i) % fillers_.size()];
      const auto spare = static_cast<int64_t>(filler.size() + ids.size()) - num_tokens;
      const int64_t skip = spare > 0 ? draws.Below(spare + 1) : 0;
      ids.insert(ids.end(), filler.begin() + (ids.empty() ? skip : 0), filler.end());
    }
    if (ids.size() < wanted) {
      return InvalidArgument("needle probes: {} tokens of text in the prompts, wanted {}",
                             ids.size(), wanted);
    }
    ids.resize(wanted);
    return TextOfTokens(format_.tokenizer, ids);
  }

  StatusOr<std::string> MakeContext(Draws& draws, const std::vector<Needle>& needles,
                                    int32_t index) const {
    std::string bare;
    for (const Needle& needle : needles) {
      bare += needle.Sentence();
    }
    HEADROOM_ASSIGN_OR_RETURN(const SplitPrompt shortest,
                              EncodePrompt(format_, bare, needles.front().Question()));
    const int64_t num_filler = request_.length - static_cast<int64_t>(shortest.ids.size());
    if (num_filler < kFewestFiller) {
      return InvalidArgument("needle probes: got a length of {} tokens, wanted at least {}",
                             request_.length, shortest.ids.size() + kFewestFiller);
    }
    HEADROOM_ASSIGN_OR_RETURN(std::string text, Filler(draws, num_filler));
    // The needle asked for stands in its own part of [0, 1); the others anywhere.
    for (size_t i = 0; i < needles.size(); ++i) {
      const double depth = i == 0 ? (index + draws.Uniform()) / request_.count : draws.Uniform();
      const auto at = static_cast<size_t>(depth * static_cast<double>(text.size()));
      const size_t stop = text.rfind(". ", at);
      text.insert(stop == std::string::npos ? 0 : stop + 2, needles[i].Sentence());
    }
    return text;
  }

  StatusOr<ProbePrompt> WithAnswer(ProbePrompt probe, const Needle& asked, int32_t split) const {
    const TokenText text(format_.tokenizer, probe.ids);
    const std::string sentence = asked.Sentence();
    const size_t begin = text.Find(sentence);
    if (begin == std::string::npos) {
      return InvalidArgument("{}: the prompt's tokens do not spell the needle", probe.id);
    }
    const size_t code = begin + sentence.rfind(asked.code);
    ProbeQuestion question;
    question.needles = {text.Tokens(begin, begin + sentence.size() - 1)};
    // The answer in the needle's own tokens, the space in front of the code among them.
    const TokenSpan source = text.Tokens(code - 1, code + asked.code.size());
    const std::vector<int32_t> lead =
        format_.tokenizer.Encode(asked.Lead(), /*add_bos=*/false, /*parse_special=*/false);
    probe.ids.insert(probe.ids.end(), lead.begin(), lead.end());
    for (int32_t i = source.begin; i < source.end; ++i) {
      const int32_t id = probe.ids[static_cast<size_t>(i)];
      if (HasDigit(format_.tokenizer.TokenBytes(id))) {
        question.copies.push_back({static_cast<int32_t>(probe.ids.size()) - 1, i});
      }
      probe.ids.push_back(id);
    }
    question.asking = {split, static_cast<int32_t>(probe.ids.size())};
    probe.questions.push_back(std::move(question));
    return probe;
  }

  const TextFormat& format_;
  const std::span<const std::vector<int32_t>> fillers_;
  const ProbeRequest& request_;
};

// How many tokens in front of `a` and of `b` are equal, at most `most`.
int32_t MatchBefore(const std::vector<int32_t>& ids, int32_t a, int32_t b, int32_t most) {
  int32_t count = 0;
  while (count < most && count < a && count < b &&
         ids[static_cast<size_t>(a - 1 - count)] == ids[static_cast<size_t>(b - 1 - count)]) {
    ++count;
  }
  return count;
}

// Tokens that count in a match: more would tell nothing apart.
constexpr int32_t kLongestMatch = 16;

// Where the token at `at` stands in the spans, with the longest run of tokens in front of it; -1.
int32_t FindSource(const std::vector<int32_t>& ids, int32_t at,
                   const std::vector<TokenSpan>& spans) {
  int32_t source = -1;
  int32_t longest = -1;
  for (const TokenSpan& span : spans) {
    for (int32_t i = span.begin; i < span.end; ++i) {
      if (ids[static_cast<size_t>(i)] != ids[static_cast<size_t>(at)]) {
        continue;
      }
      const int32_t match = MatchBefore(ids, i, at, kLongestMatch);
      if (match > longest) {
        longest = match;
        source = i;
      }
    }
  }
  return source;
}

// The sources with the token in front of each, as ascending spans.
std::vector<TokenSpan> SpansAround(const std::vector<ProbeCopy>& copies) {
  std::vector<TokenSpan> spans;
  for (const ProbeCopy& copy : copies) {
    spans.push_back({std::max(copy.source - 1, 0), copy.source + 1});
  }
  std::sort(spans.begin(), spans.end(),
            [](const TokenSpan& a, const TokenSpan& b) { return a.begin < b.begin; });
  std::vector<TokenSpan> merged;
  for (const TokenSpan& span : spans) {
    if (!merged.empty() && span.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

}  // namespace

std::string TextOfTokens(const models::Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    bytes += tokenizer.TokenBytes(id);
  }
  std::string text;
  for (size_t i = 0; i < bytes.size();) {
    const models::Utf8Char character = models::DecodeUtf8(bytes, i);
    const auto num_bytes = static_cast<size_t>(character.num_bytes);
    if (character.result == models::Utf8Result::kCharacter) {
      text.append(bytes, i, num_bytes);
    }
    i += num_bytes;
  }
  return text;
}

StatusOr<std::vector<ProbePrompt>> MakeTextProbes(const TextFormat& format,
                                                  std::span<const std::vector<int32_t>> fillers,
                                                  const ProbeRequest& request) {
  if (fillers.empty()) {
    return InvalidArgument("needle probes: no text to hide needles in");
  }
  TextProbeMaker maker(format, fillers, request);
  std::vector<ProbePrompt> probes;
  for (int32_t i = 0; i < request.count; ++i) {
    HEADROOM_ASSIGN_OR_RETURN(ProbePrompt probe, maker.Make(i));
    probes.push_back(std::move(probe));
  }
  return probes;
}

StatusOr<ProbePrompt> MakeIdProbe(const NeedlePrompt& prompt, std::vector<TokenSpan> needles) {
  ProbePrompt probe;
  probe.kind = "needle_prompts";
  probe.id = prompt.id;
  probe.ids = prompt.ids;
  probe.ids.insert(probe.ids.end(), prompt.answer.begin(), prompt.answer.end());
  const std::vector<TokenSpan> context = {{0, prompt.split}};
  for (const TokenSpan& span : needles) {
    if (span.begin < 0 || span.begin >= span.end || span.end > prompt.split) {
      return InvalidArgument("{}: needle [{}, {}), wanted a range inside the context of {} tokens",
                             prompt.id, span.begin, span.end, prompt.split);
    }
  }
  ProbeQuestion question;
  question.asking = {prompt.split, static_cast<int32_t>(probe.ids.size())};
  for (auto at = static_cast<int32_t>(prompt.ids.size()); at < question.asking.end; ++at) {
    const int32_t source = FindSource(probe.ids, at, needles.empty() ? context : needles);
    if (source >= 0) {
      question.copies.push_back({at - 1, source});
    }
  }
  if (question.copies.empty()) {
    return InvalidArgument("{}: wanted a token of the answer to stand in the {}", prompt.id,
                           needles.empty() ? "context" : "needle");
  }
  question.needles = needles.empty() ? SpansAround(question.copies) : std::move(needles);
  probe.questions.push_back(std::move(question));
  return probe;
}

std::vector<ProbePrompt> MakeBlockProbes(const models::Tokenizer* tokenizer, int32_t vocab_size,
                                         int32_t repeats, const ProbeRequest& request) {
  std::vector<int32_t> words;
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (tokenizer == nullptr || tokenizer->Type(id) == models::TokenType::kNormal) {
      words.push_back(id);
    }
  }
  // A vocabulary of bytes alone.
  const bool are_bytes = words.empty();
  for (int32_t id = 0; are_bytes && id < vocab_size; ++id) {
    if (tokenizer->Type(id) == models::TokenType::kByte) {
      words.push_back(id);
    }
  }
  if (words.empty()) {
    return {};
  }
  std::vector<ProbePrompt> probes;
  for (int32_t index = 0; index < request.count; ++index) {
    ProbePrompt probe;
    probe.kind = "induction";
    probe.id = fmt::format("blocks-{}-{}-{}", request.length, request.seed, index);
    if (tokenizer != nullptr && tokenizer->bos_id() >= 0) {
      probe.ids.push_back(tokenizer->bos_id());
    }
    probe.block_begin = static_cast<int32_t>(probe.ids.size());
    probe.block_tokens = std::max(request.length / repeats, 2);
    Draws draws(request.seed, probe.id);
    for (int32_t i = 0; i < probe.block_tokens; ++i) {
      probe.ids.push_back(
          words[static_cast<size_t>(draws.Below(static_cast<int64_t>(words.size())))]);
    }
    for (int32_t i = 0; i < (repeats - 1) * probe.block_tokens; ++i) {
      probe.ids.push_back(
          probe.ids[static_cast<size_t>(probe.block_begin) + static_cast<size_t>(i)]);
    }
    probes.push_back(std::move(probe));
  }
  return probes;
}

}  // namespace headroom::profiler
