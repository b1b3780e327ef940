#include "models/tokenizer/byte_level_bpe.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

namespace headroom::models {
namespace {

// Where scanning for the lowest rank stops being quicker than a heap.
constexpr size_t kMaxShortParts = 48;

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> ByteLevelBpe::Create(TokenizerData data) {
  const std::optional<PreTokenizer> pre_tokenizer = FindPreTokenizer(data.pre);
  if (!pre_tokenizer.has_value()) {
    return InvalidArgument("tokenizer: unknown pre-tokenizer '{}', wanted one of {}", data.pre,
                           PreTokenizerNames());
  }
  const std::vector<std::string> merge_list = std::move(data.merges);
  data.merges.clear();
  HEADROOM_ASSIGN_OR_RETURN(Vocabulary vocabulary,
                            Vocabulary::Create(std::move(data), PieceSpelling::kByteLevel));
  HEADROOM_ASSIGN_OR_RETURN(MergeTable merges, MergeTable::Create(merge_list, vocabulary));
  return std::unique_ptr<Tokenizer>(
      new ByteLevelBpe(std::move(vocabulary), std::move(merges), *pre_tokenizer));
}

ByteLevelBpe::ByteLevelBpe(Vocabulary taken_vocabulary, MergeTable merges,
                           PreTokenizer pre_tokenizer)
    : VocabularyTokenizer(std::move(taken_vocabulary)),
      merges_(std::move(merges)),
      pre_tokenizer_(pre_tokenizer) {
  if (pre_tokenizer_.ignore_merges) {
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (Type(id) == TokenType::kNormal && !TokenBytes(id).empty()) {
        whole_words_.try_emplace(TokenBytes(id), id);
      }
    }
  }
  std::vector<Part> parts;
  EncodeWord("\xEF\xBF\xBD", &parts);
  for (const Part& part : parts) {
    missing_byte_ids_.push_back(part.id);
  }
  if (std::find(missing_byte_ids_.begin(), missing_byte_ids_.end(), -1) !=
      missing_byte_ids_.end()) {
    missing_byte_ids_.clear();
    if (vocabulary().FallbackToken() >= 0) {
      missing_byte_ids_.push_back(vocabulary().FallbackToken());
    }
  }
}

void ByteLevelBpe::EncodeSegment(std::string_view text, size_t begin, size_t end,
                                 EncodingSink* sink) const {
  const std::string_view segment = text.substr(begin, end - begin);
  std::vector<size_t> word_ends;
  PreTokenize(pre_tokenizer_.kind, segment, &word_ends);
  std::vector<Part> parts;
  size_t word_begin = 0;
  for (const size_t word_end : word_ends) {
    EncodeWord(segment.substr(word_begin, word_end - word_begin), &parts);
    const size_t origin = begin + word_begin;
    for (const Part& part : parts) {
      if (part.id >= 0) {
        sink->Add(part.id, origin + part.begin, origin + part.end);
        continue;
      }
      for (const int32_t id : missing_byte_ids_) {
        sink->Add(id, origin + part.begin, origin + part.end);
      }
    }
    word_begin = word_end;
  }
}

void ByteLevelBpe::EncodeWord(std::string_view word, std::vector<Part>* parts) const {
  parts->clear();
  if (!whole_words_.empty()) {
    if (const auto whole = whole_words_.find(word); whole != whole_words_.end()) {
      parts->push_back({whole->second, 0, word.size()});
      return;
    }
  }
  for (size_t i = 0; i < word.size(); ++i) {
    parts->push_back({vocabulary().ByteToken(static_cast<uint8_t>(word[i])), i, i + 1});
  }
  if (parts->size() <= kMaxShortParts) {
    MergeShort(parts);
  } else {
    MergeLong(parts);
  }
}

void ByteLevelBpe::MergeShort(std::vector<Part>* parts) const {
  MergeTable::Merge merges[kMaxShortParts];  // [num_parts - 1], of part i with part i + 1
  size_t num_parts = parts->size();
  Part* part = parts->data();
  for (size_t i = 0; i + 1 < num_parts; ++i) {
    merges[i] = merges_.Find(part[i].id, part[i + 1].id);
  }
  while (num_parts > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < num_parts; ++i) {
      best = merges[i].rank < merges[best].rank ? i : best;
    }
    if (!merges[best].exists()) {
      break;
    }
    part[best] = {merges[best].result, part[best].begin, part[best + 1].end};
    std::copy(part + best + 2, part + num_parts, part + best + 1);
    if (best + 2 < num_parts) {
      std::copy(merges + best + 2, merges + num_parts - 1, merges + best + 1);
    }
    --num_parts;
    if (best > 0) {
      merges[best - 1] = merges_.Find(part[best - 1].id, part[best].id);
    }
    if (best + 1 < num_parts) {
      merges[best] = merges_.Find(part[best].id, part[best + 1].id);
    }
  }
  parts->resize(num_parts);
}

void ByteLevelBpe::MergeLong(std::vector<Part>* parts) const {
  // A merge that was possible when it was queued: stale once either part has changed.
  struct Candidate {
    MergeTable::Merge merge;
    size_t left = 0;
    int32_t left_id = -1;
    int32_t right_id = -1;
    bool operator<(const Candidate& other) const {  // the queue's top is its largest
      return std::tie(merge.rank, left) > std::tie(other.merge.rank, other.left);
    }
  };
  const size_t none = parts->size();
  std::vector<size_t> previous(parts->size());
  std::vector<size_t> next(parts->size());  // a part that was merged away has next 0
  std::priority_queue<Candidate> queue;
  auto consider = [&](size_t left, size_t right) {
    const int32_t left_id = (*parts)[left].id;
    const int32_t right_id = (*parts)[right].id;
    const MergeTable::Merge merge = merges_.Find(left_id, right_id);
    if (merge.exists()) {
      queue.push({merge, left, left_id, right_id});
    }
  };
  for (size_t i = 0; i < parts->size(); ++i) {
    previous[i] = i == 0 ? none : i - 1;
    next[i] = i + 1;
    if (i > 0) {
      consider(i - 1, i);
    }
  }
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const size_t right = next[top.left];
    if (right == 0 || right == none || (*parts)[top.left].id != top.left_id ||
        (*parts)[right].id != top.right_id) {
      continue;
    }
    (*parts)[top.left].id = top.merge.result;
    (*parts)[top.left].end = (*parts)[right].end;
    next[top.left] = next[right];
    next[right] = 0;
    if (next[top.left] != none) {
      previous[next[top.left]] = top.left;
      consider(top.left, next[top.left]);
    }
    if (previous[top.left] != none) {
      consider(previous[top.left], top.left);
    }
  }
  size_t num_parts = 0;
  for (size_t i = 0; i != none; i = next[i]) {
    (*parts)[num_parts++] = (*parts)[i];
  }
  parts->resize(num_parts);
}

}  // namespace headroom::models
