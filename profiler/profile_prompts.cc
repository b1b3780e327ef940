#include "profiler/profile_prompts.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "models/fingerprint.h"

namespace headroom::profiler {
namespace {

constexpr std::string_view kSeparator = "---";
constexpr const char* kBlanks = " \t\r\n";

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(kBlanks) == std::string_view::npos;
}

bool Before(const ProfilePrompt& a, const ProfilePrompt& b) {
  return std::tie(a.hash, a.domain, a.weight) < std::tie(b.hash, b.domain, b.weight);
}

}  // namespace

void AddPrompt(ProfilePrompt prompt, const PromptLimits& limits, ProfileInput* input) {
  const auto most = static_cast<size_t>(limits.max_tokens);
  if (prompt.ids.size() > most) {
    const size_t head = most / 2;
    const size_t dropped = prompt.ids.size() - most;
    const auto begin = prompt.ids.begin() + static_cast<ptrdiff_t>(head);
    prompt.ids.erase(begin, begin + static_cast<ptrdiff_t>(dropped));
    ++input->num_cut;
  }
  prompt.hash = models::PromptHash(prompt.ids);
  input->prompts.push_back(std::move(prompt));
}

void AddTextPrompt(const std::string& text, const std::string& id, const PromptLimits& limits,
                   ProfileInput* input) {
  if (IsBlank(text)) {
    ++input->num_blank;
    return;
  }
  ProfilePrompt prompt;
  prompt.id = id;
  prompt.domain = "text";
  prompt.ids = EncodePlainText(*limits.format, text);
  AddPrompt(std::move(prompt), limits, input);
}

Status ReadPromptText(std::string_view text, const std::string& source, const PromptLimits& limits,
                      ProfileInput* input) {
  if (limits.format == nullptr) {
    return InvalidArgument("{}: the model has no tokenizer, wanted JSON lines with token_ids",
                           source);
  }
  std::string record;
  int64_t line_number = 0;
  int64_t first_line = 1;
  const auto finish = [&] {
    AddTextPrompt(record, fmt::format("{}:{}", source, first_line), limits, input);
    record.clear();
    first_line = line_number + 1;
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line == kSeparator) {
      finish();
    } else {
      record.append(line).push_back('\n');
    }
  }
  finish();
  return OkStatus();
}

void SortAndLimit(int64_t limit, ProfileInput* input) {
  std::stable_sort(input->prompts.begin(), input->prompts.end(), Before);
  if (limit < static_cast<int64_t>(input->prompts.size())) {
    input->prompts.resize(static_cast<size_t>(limit));
  }
  HEADROOM_CHECK(input->needles.size() == input->probes.size());
  std::vector<size_t> order(input->probes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [input](size_t a, size_t b) {
    return input->probes[a].ids < input->probes[b].ids;
  });
  std::vector<ProbePrompt> probes;
  std::vector<NeedlePrompt> needles;
  for (const size_t i : order) {
    probes.push_back(std::move(input->probes[i]));
    needles.push_back(std::move(input->needles[i]));
  }
  input->probes = std::move(probes);
  input->needles = std::move(needles);
}

void CutToLengths(const std::vector<int32_t>& lengths, ProfileInput* input) {
  if (lengths.empty()) {
    return;
  }
  std::vector<ProfilePrompt> prompts;
  for (ProfilePrompt& prompt : input->prompts) {
    const bool is_short = prompt.ids.size() < static_cast<size_t>(lengths.front());
    for (const int32_t length : lengths) {
      if (prompt.ids.size() < static_cast<size_t>(length)) {
        break;
      }
      ProfilePrompt cut = prompt;
      cut.ids.resize(static_cast<size_t>(length));
      cut.hash = models::PromptHash(cut.ids);
      prompts.push_back(std::move(cut));
    }
    if (is_short) {
      prompts.push_back(std::move(prompt));
    }
  }
  std::stable_sort(prompts.begin(), prompts.end(), Before);
  input->prompts = std::move(prompts);
}

HeldOut TakeHeldOut(int64_t count, ProfileInput* input) {
  HEADROOM_CHECK(input->needles.size() == input->probes.size());
  const auto total = static_cast<int64_t>(input->prompts.size());
  count = std::min(count, total);
  HeldOut held_out;
  std::vector<ProfilePrompt> kept;
  std::set<std::vector<int32_t>> held_ids;
  for (int64_t i = 0; i < total; ++i) {
    const bool is_held = i * count / total != (i + 1) * count / total;
    ProfilePrompt& prompt = input->prompts[static_cast<size_t>(i)];
    if (is_held) {
      held_ids.insert(prompt.ids);
    }
    (is_held ? held_out.prompts : kept).push_back(std::move(prompt));
  }
  input->prompts = std::move(kept);
  ProfileInput left;
  for (size_t i = 0; i < input->probes.size(); ++i) {
    if (held_ids.count(input->probes[i].ids) > 0) {
      held_out.needles.push_back(std::move(input->needles[i]));
    } else {
      left.probes.push_back(std::move(input->probes[i]));
      left.needles.push_back(std::move(input->needles[i]));
    }
  }
  input->probes = std::move(left.probes);
  input->needles = std::move(left.needles);
  return held_out;
}

}  // namespace headroom::profiler
