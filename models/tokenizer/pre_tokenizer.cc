#include "models/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "models/tokenizer/deepseek_scanner.h"
#include "models/tokenizer/scanner.h"

namespace headroom::models {
namespace {

struct NamedPreTokenizer {
  std::string_view name;
  PreTokenizer pre_tokenizer;
};

// Names and groups as in ggml-org/llama.cpp:src/llama-vocab.cpp.
constexpr PreTokenizer kGpt2{PreTokenizerKind::kGpt2, false};
constexpr PreTokenizer kSmolLm{PreTokenizerKind::kSmolLm, false};
constexpr PreTokenizer kLlama3{PreTokenizerKind::kLlama3, true};
constexpr PreTokenizer kLlama3Merges{PreTokenizerKind::kLlama3, false};
constexpr PreTokenizer kQwen2{PreTokenizerKind::kQwen2, false};
constexpr PreTokenizer kDeepSeekLlm{PreTokenizerKind::kDeepSeekLlm, false};
constexpr NamedPreTokenizer kNames[] = {
    {"default", kGpt2},
    {"gpt-2", kGpt2},
    {"gpt2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"jais", kGpt2},
    {"gigachat", kGpt2},
    {"mellum", kGpt2},
    {"a.x-4.0", kGpt2},
    {"exaone4", kGpt2},
    {"trillion", kGpt2},
    {"granite-docling", kGpt2},
    {"smollm", kSmolLm},
    {"starcoder", kSmolLm},
    {"refact", kSmolLm},
    {"command-r", kSmolLm},
    {"codeshell", kSmolLm},
    {"exaone", kSmolLm},
    {"minerva-7b", kSmolLm},
    {"llama-bpe", kLlama3},
    {"llama3", kLlama3},
    {"llama-v3", kLlama3},
    {"falcon3", kLlama3},
    {"falcon-h1", kLlama3},
    {"pixtral", kLlama3},
    {"midm-2.0", kLlama3},
    {"lfm2", kLlama3},
    {"dbrx", kLlama3Merges},
    {"smaug-bpe", kLlama3Merges},
    {"glm4", kLlama3Merges},
    {"chatglm-bpe", kLlama3Merges},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"megrez", kQwen2},
    {"stablelm2", kQwen2},
    {"hunyuan", kQwen2},
    {"solar-open", kQwen2},
    {"grok-2", kQwen2},
    {"deepseek-llm", kDeepSeekLlm},
};

// The characters of a regular expression's "'s|'t|'re|'ve|'m|'ll|'d" at `position`, or 0.
size_t ContractionLength(std::string_view text, size_t position, bool ignore_case) {
  auto letter = [&](size_t index) {
    const char c = index < text.size() ? text[index] : '\0';
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(position + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') {
    return 2;
  }
  const char second = letter(position + 2);
  const bool two_letters = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                           (first == 'l' && second == 'l');
  return two_letters ? 3 : 0;
}

// \s+(?!\S)|\s+ : a run of white space leaves its last character to the word that follows.
size_t EndOfSpace(std::string_view text, size_t position) {
  size_t last = position;
  size_t end = position;
  for (ScannedChar c = CharAt(text, end); c.char_class == CharClass::kSpace;
       c = CharAt(text, end)) {
    last = end;
    end += c.num_bytes;
    if (end == text.size()) {
      return end;
    }
  }
  return last > position ? last : end;
}

size_t EndOfGpt2Word(std::string_view text, size_t position) {
  const ScannedChar first = CharAt(text, position);
  if (first.code_point == '\'') {
    if (const size_t length = ContractionLength(text, position, false); length > 0) {
      return position + length;
    }
  }
  size_t start = position;
  WordGroup group = GroupOf(first);
  if (first.code_point == ' ' && position + 1 < text.size()) {
    group = GroupOf(CharAt(text, position + 1));
    start = position + 1;
  }
  return group == WordGroup::kSpace ? EndOfSpace(text, position) : EndOfRun(text, start, group);
}

// kLlama3 and kQwen2. \s*[\r\n]+ ends at the last line break of a run of white space.
size_t EndOfLlama3Word(std::string_view text, size_t position, int max_digits) {
  const ScannedChar first = CharAt(text, position);
  if (first.code_point == '\'') {
    if (const size_t length = ContractionLength(text, position, true); length > 0) {
      return position + length;
    }
  }
  const WordGroup group = GroupOf(first);
  const size_t second = position + first.num_bytes;
  if (group == WordGroup::kNumber) {
    size_t end = second;
    for (int digits = 1; digits < max_digits && end < text.size(); ++digits) {
      const ScannedChar c = CharAt(text, end);
      if (GroupOf(c) != WordGroup::kNumber) {
        break;
      }
      end += c.num_bytes;
    }
    return end;
  }
  if (group == WordGroup::kLetter) {
    return EndOfRun(text, second, WordGroup::kLetter);
  }
  const WordGroup next = second < text.size() ? GroupOf(CharAt(text, second)) : WordGroup::kSpace;
  if (!IsLineBreak(first) && next == WordGroup::kLetter) {
    return EndOfRun(text, second, WordGroup::kLetter);
  }
  if (group == WordGroup::kRest || (first.code_point == ' ' && next == WordGroup::kRest)) {
    size_t end = EndOfRun(text, second, WordGroup::kRest);
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n')) {
      ++end;
    }
    return end;
  }
  size_t end_of_last_break = 0;
  size_t end = position;
  while (end < text.size()) {
    const ScannedChar c = CharAt(text, end);
    if (c.char_class != CharClass::kSpace) {
      break;
    }
    end += c.num_bytes;
    end_of_last_break = IsLineBreak(c) ? end : end_of_last_break;
  }
  return end_of_last_break > 0 ? end_of_last_break : EndOfSpace(text, position);
}

void AppendGpt2Words(std::string_view text, size_t begin, size_t end, std::vector<size_t>* ends) {
  const std::string_view part = text.substr(begin, end - begin);
  for (size_t position = 0; position < part.size();) {
    position = EndOfGpt2Word(part, position);
    ends->push_back(begin + position);
  }
}

void PreTokenizeSmolLm(std::string_view text, std::vector<size_t>* ends) {
  size_t begin = 0;
  for (size_t position = 0; position < text.size();) {
    const ScannedChar c = CharAt(text, position);
    const size_t next = position + c.num_bytes;
    if (c.char_class == CharClass::kNumber) {
      AppendGpt2Words(text, begin, position, ends);
      ends->push_back(next);
      begin = next;
    }
    position = next;
  }
  AppendGpt2Words(text, begin, text.size(), ends);
}

}  // namespace

std::optional<PreTokenizer> FindPreTokenizer(std::string_view name) {
  if (name.empty()) {
    return kGpt2;
  }
  const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const NamedPreTokenizer& n) { return n.name == name; });
  if (found == std::end(kNames)) {
    return std::nullopt;
  }
  return found->pre_tokenizer;
}

std::string PreTokenizerNames() {
  std::string names;
  for (const NamedPreTokenizer& entry : kNames) {
    names += names.empty() ? "" : ", ";
    names += entry.name;
  }
  return names;
}

void PreTokenize(PreTokenizerKind kind, std::string_view text, std::vector<size_t>* ends) {
  ends->clear();
  switch (kind) {
    case PreTokenizerKind::kGpt2:
      AppendGpt2Words(text, 0, text.size(), ends);
      return;
    case PreTokenizerKind::kSmolLm:
      PreTokenizeSmolLm(text, ends);
      return;
    case PreTokenizerKind::kDeepSeekLlm:
      PreTokenizeDeepSeekLlm(text, ends);
      return;
    case PreTokenizerKind::kLlama3:
    case PreTokenizerKind::kQwen2: {
      const int max_digits = kind == PreTokenizerKind::kLlama3 ? 3 : 1;
      for (size_t position = 0; position < text.size();) {
        position = EndOfLlama3Word(text, position, max_digits);
        ends->push_back(position);
      }
      return;
    }
  }
}

}  // namespace headroom::models
