#include "engine/output_assembler.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::engine {
namespace {

bool Contains(const std::vector<int32_t>& ids, int32_t token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

struct StopMatch {
  size_t begin = 0;
  size_t end = 0;
  const std::string* stop = nullptr;
};

// The match that is complete first when the text is read byte by byte; of two that end together,
// the longer. This rule alone makes the result independent of how tokens split the text. Matches
// that end within the first `passed` bytes do not count.
StopMatch FindStop(std::string_view text, size_t passed, const std::vector<std::string>& stops) {
  StopMatch best;
  for (const std::string& stop : stops) {
    const size_t begin = text.find(stop, passed < stop.size() ? 0 : passed - stop.size() + 1);
    if (stop.empty() || begin == std::string_view::npos) {
      continue;
    }
    const size_t end = begin + stop.size();
    if (best.stop == nullptr || end < best.end || (end == best.end && begin < best.begin)) {
      best = {begin, end, &stop};
    }
  }
  return best;
}

// How many bytes at the end of `text` could be the beginning of a stop string.
size_t OpenSuffix(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    size_t length = std::min(text.size(), stop.empty() ? 0 : stop.size() - 1);
    for (; length > longest; --length) {
      if (text.ends_with(std::string_view(stop).substr(0, length))) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}

}  // namespace

OutputAssembler::OutputAssembler(const models::Tokenizer* tokenizer, const StopCriteria& stop)
    : tokenizer_(tokenizer), stop_(stop) {
  if (tokenizer_ != nullptr) {
    detokenizer_.emplace(*tokenizer_);
  }
}

OutputAssembler::Result OutputAssembler::Add(int32_t token) {
  ++num_tokens_;
  const bool may_stop = num_tokens_ > stop_.min_new_tokens;
  Result result;
  const bool is_eos = Contains(stop_.eos_token_ids, token);
  if (may_stop && (is_eos || Contains(stop_.stop_token_ids, token))) {
    result.finish = FinishReason::kStop;
    if (!is_eos) {
      result.stop_token = token;
    }
    result.text = Flush();
    return result;
  }
  if (detokenizer_) {
    held_ += detokenizer_->Add(token);
    if (!may_stop) {
      passed_ = held_.size();
    } else if (TakeStop(result)) {
      return result;
    }
    result.text = TakeSafeText();
  }
  if (num_tokens_ >= stop_.max_new_tokens) {
    result.finish = FinishReason::kLength;
    result.text += Flush();
  }
  return result;
}

bool OutputAssembler::TakeStop(Result& result) {
  const StopMatch match = FindStop(held_, passed_, stop_.stop_strings);
  if (match.stop == nullptr) {
    return false;
  }
  result.finish = FinishReason::kStop;
  result.stop_string = *match.stop;
  result.text = held_.substr(0, stop_.include_stop_string ? match.end : match.begin);
  held_.clear();
  return true;
}

std::string OutputAssembler::TakeSafeText() {
  const size_t safe = held_.size() - OpenSuffix(held_, stop_.stop_strings);
  std::string text = held_.substr(0, safe);
  held_.erase(0, safe);
  passed_ -= std::min(passed_, safe);
  return text;
}

std::string OutputAssembler::Flush() {
  std::string text = std::move(held_);
  held_.clear();
  if (detokenizer_) {
    text += detokenizer_->Flush();
  }
  return text;
}

}  // namespace headroom::engine
