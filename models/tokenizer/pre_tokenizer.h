// Cuts text into the words inside which byte-level BPE may merge.
//
// Model files name a pattern (GGUF: tokenizer.ggml.pre); the patterns are regular expressions in
// tokenizer.json. They are few, so each is a hand-written scanner here: linear in the text
// whatever it holds, with at most one character of look-ahead beyond a run.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::models {

enum class PreTokenizerKind {
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,
  // Every \p{N} alone, then kGpt2 on what lies between.
  kSmolLm,
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
  // ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kLlama3,
  // kLlama3 with \p{N} in place of \p{N}{1,3}.
  kQwen2,
  // Six cuts, one after the other: line breaks, cased words, punctuation, trailing white space,
  // East Asian runs, numbers.
  kDeepSeekLlm,
};

struct PreTokenizer {
  PreTokenizerKind kind = PreTokenizerKind::kGpt2;
  // A word that is a vocabulary piece is taken whole, without following the merges.
  bool ignore_merges = false;
};

// The pre-tokenizer of that GGUF name, or nothing. "" and "default" are the GPT-2 pattern.
std::optional<PreTokenizer> FindPreTokenizer(std::string_view name);

// All names that FindPreTokenizer knows, for messages: "gpt-2, smollm, ...".
std::string PreTokenizerNames();

// Replaces `ends` by the end offset of each word; words are contiguous, not empty and cover the
// text. Bytes that are not UTF-8 count as symbols.
void PreTokenize(PreTokenizerKind kind, std::string_view text, std::vector<size_t>* ends);

}  // namespace headroom::models
