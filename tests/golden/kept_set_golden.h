// What the golden tests of kept sets share: backends by name, comparison up to ties, the scores
// that a prefill computed, and the needle models' prompts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/kv/retention.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"
#include "tests/support/forwarding_backend.h"
#include "tests/support/test_data.h"

namespace headroom::testing {

using engine::LayerScores;
using nlohmann::json;

// Relative, around the score at the cut.
inline constexpr double kTieTolerance = 1e-4;

inline std::unique_ptr<kernels::Backend> MakeBackend(const std::string& name) {
  if (name == "ref") {
    return kernels::CreateRefBackend();
  }
  auto backend = kernels::CreateCpuBackend({.isa = "auto", .num_threads = 1});
  HEADROOM_CHECK(backend.ok());
  return std::move(backend).value();
}

inline json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

// The worst score of a selection. `scores` covers the slots that compete.
inline double CutOf(const std::vector<int32_t>& selected, const std::vector<float>& scores) {
  double cut = INFINITY;
  for (const int32_t slot : selected) {
    if (static_cast<size_t>(slot) < scores.size()) {
      cut = std::min(cut, double{scores[static_cast<size_t>(slot)]});
    }
  }
  return cut;
}

// Whether two ascending selections differ only in slots that score as one of the cuts does. The
// slots that do not compete are in both.
inline ::testing::AssertionResult DifferOnlyAt(const std::vector<double>& cuts,
                                               const std::vector<int32_t>& got,
                                               const std::vector<int32_t>& wanted,
                                               const std::vector<float>& scores) {
  std::vector<int32_t> different;
  std::set_symmetric_difference(got.begin(), got.end(), wanted.begin(), wanted.end(),
                                std::back_inserter(different));
  for (const int32_t slot : different) {
    if (static_cast<size_t>(slot) >= scores.size()) {
      return ::testing::AssertionFailure() << "window slot " << slot << " in one set only";
    }
    const double score = double{scores[static_cast<size_t>(slot)]};
    if (std::none_of(cuts.begin(), cuts.end(), [&](double cut) {
          return std::abs(score - cut) <= kTieTolerance * std::abs(cut);
        })) {
      return ::testing::AssertionFailure()
             << "slot " << slot << " has score " << score << ", the cut is at " << cuts.back();
    }
  }
  return ::testing::AssertionSuccess();
}

// The same for selections of equal size with one cut.
inline ::testing::AssertionResult SameButForTies(const std::vector<int32_t>& got,
                                                 const std::vector<int32_t>& wanted,
                                                 const std::vector<float>& scores) {
  if (got.size() != wanted.size()) {
    return ::testing::AssertionFailure() << got.size() << " slots, wanted " << wanted.size();
  }
  return DifferOnlyAt({CutOf(wanted, scores)}, got, wanted, scores);
}

inline std::vector<float> HeadScores(const LayerScores& scores, size_t head) {
  const auto begin = scores.pooled.begin() + static_cast<std::ptrdiff_t>(head) * scores.num_columns;
  return {begin, begin + scores.num_columns};
}

inline std::vector<float> SummedScores(const LayerScores& scores, size_t num_heads) {
  std::vector<float> sum(static_cast<size_t>(scores.num_columns), 0.0f);
  for (size_t head = 0; head < num_heads; ++head) {
    const std::vector<float> values = HeadScores(scores, head);
    std::transform(sum.begin(), sum.end(), values.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

// Keeps the scores of every layer, in order of the layers; of column sums their means over the rows
// that see the column, where one call covers the whole prompt.
class ScoreKeeper final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void WindowScores(const kernels::WindowScoresParams& params) override {
    ForwardingBackend::WindowScores(params);
    const size_t size = static_cast<size_t>(params.arena.geometry.num_kv_heads) *
                        static_cast<size_t>(params.num_columns);
    scores.push_back({.num_columns = params.num_columns,
                      .pooled = {params.pooled, params.pooled + size},
                      .raw = {params.raw, params.raw + size}});
  }
  void ColumnScores(const kernels::ColumnScoresParams& params) override {
    ForwardingBackend::ColumnScores(params);
    LayerScores layer;
    layer.num_columns = params.heads[0].num_slots;
    for (const int64_t* sums : params.sums) {
      for (int32_t slot = 0; slot < layer.num_columns; ++slot) {
        layer.pooled.push_back(
            static_cast<float>(static_cast<double>(sums[slot]) / (layer.num_columns - slot)));
      }
    }
    scores.push_back(std::move(layer));
  }
  std::vector<LayerScores> scores;
};

// Prompts of the needle models: context, then question.
class NeedlePrompts {
 public:
  std::vector<int32_t> Get(const std::string& file, const std::string& id) {
    if (!lines_.contains(file)) {
      std::ifstream stream(*SharedDataPath("needle/" + file));
      for (std::string line; std::getline(stream, line);) {
        lines_[file].push_back(json::parse(line));
      }
    }
    const std::vector<json>& lines = lines_[file];
    const auto line = std::find_if(lines.begin(), lines.end(),
                                   [&](const json& each) { return each["id"] == id; });
    HEADROOM_CHECK(line != lines.end());
    std::vector<int32_t> prompt = (*line)["context"];
    const std::vector<int32_t> question = (*line)["question"];
    prompt.insert(prompt.end(), question.begin(), question.end());
    return prompt;
  }

 private:
  std::map<std::string, std::vector<json>> lines_;
};

}  // namespace headroom::testing
