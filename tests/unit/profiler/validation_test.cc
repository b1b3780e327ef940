// Order of dense heads, validation and the choices that follow, on a small trained model of which
// it is known which heads fetch: KV heads 0 and 1 of layer 1 (docs/benchmarks-policies.md).
#include "profiler/validation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "profiler/dense_order.h"
#include "profiler/evaluation/needle_generator.h"
#include "profiler/validation_material.h"
#include "tests/unit/profiler/profiled_model.h"

namespace headroom::profiler {
namespace {

using engine::HeadMap;
using engine::HeadType;
using engine::kPpm;

constexpr int32_t kVocabulary = 512;
constexpr int32_t kHeads = 2;

class Silent final : public EvalObserver {
 public:
  void Progress(int64_t done, int64_t total, const std::string& /*what*/) override {
    EXPECT_LE(done, total);
    cancelled_ = done >= cancel_at;
  }
  void Finished(const std::string& /*unit*/, int64_t /*index*/, int64_t /*count*/) override {}
  bool Cancelled() const override { return cancelled_; }

  int64_t cancel_at = INT64_MAX;

 private:
  bool cancelled_ = false;
};

std::string Text() {
  std::string text;
  for (int i = 0; text.size() < 40'000; ++i) {
    text += fmt::format("Line {} of the log says that machine {} was idle at {}. ", i, i * 7 % 31,
                        i * 13 % 97);
  }
  return text;
}

class ValidationTest : public ::testing::Test {
 protected:
  ValidationTest()
      : model_(HEADROOM_SOURCE_DIR "/tests/data/needle-1hop", /*num_threads=*/2, 512),
        reader_(model_.MakeReader(64)),
        eval_(reader_->model()) {}

  // Heads that are dense, the highest probe score first.
  HeadMap MapWith(const std::vector<std::pair<int32_t, int32_t>>& dense) const {
    HeadMap map;
    map.model.num_layers = eval_.shape.num_layers;
    map.model.num_kv_heads = eval_.shape.num_kv_heads;
    map.model.num_query_heads = 2 * map.model.num_kv_heads;
    map.heads.resize(static_cast<size_t>(map.model.num_layers) * kHeads);
    for (engine::HeadEntry& head : map.heads) {
      head.type = HeadType::kHeavy;
      head.confidence_ppm = kPpm;
    }
    int64_t score = 900'000;
    for (const auto& [layer, head] : dense) {
      engine::HeadEntry& entry =
          map.heads[static_cast<size_t>(layer) * kHeads + static_cast<size_t>(head)];
      entry.type = HeadType::kDense;
      entry.copy_ppm = score -= 10'000;
    }
    return map;
  }

  static std::vector<NeedlePrompt> Needles(int32_t count, uint64_t seed) {
    auto needles =
        MakeIdNeedles("1hop", Text(), {.length = 256, .count = count, .seed = seed}, kVocabulary);
    EXPECT_TRUE(needles.ok()) << StatusMessage(needles.status());
    return *needles;
  }

  static ValidationMaterial Material(int32_t num_needles) {
    ValidationMaterial material;
    material.fidelity.continuation_tokens = 64;
    const auto documents = CutBytes(Text(), "log", {.num_tokens = 256, .max_documents = 3});
    EXPECT_TRUE(documents.ok());
    material.documents = *documents;
    material.tasks = {{.name = "1hop", .prompts = Needles(num_needles, 5)}};
    AddCandidates(material.tasks[0].prompts, 4, 1);
    return material;
  }

  ProfiledModel model_;
  std::unique_ptr<PromptReader> reader_;
  const EvalModel& eval_;
  Silent observer_;
};

TEST_F(ValidationTest, HeadsThatFetchAreFilledFirstWhateverTheirProbeScores) {
  const HeadMap map = MapWith({{4, 0}, {2, 1}, {1, 1}, {5, 0}, {1, 0}});
  const auto ranks = OrderDenseHeads(eval_, Needles(6, 3), {}, map, observer_);
  ASSERT_TRUE(ranks.ok()) << StatusMessage(ranks.status());
  EXPECT_EQ(std::set<int32_t>({(*ranks)[2], (*ranks)[3]}), std::set<int32_t>({0, 1}));
  std::vector<int32_t> tried;
  for (size_t i = 0; i < ranks->size(); ++i) {
    EXPECT_EQ((*ranks)[i] >= 0, map.heads[i].type == HeadType::kDense) << i;
    if ((*ranks)[i] >= 0) {
      tried.push_back((*ranks)[i]);
    }
  }
  std::sort(tried.begin(), tried.end());
  EXPECT_EQ(tried, (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST_F(ValidationTest, TheOrderTriesNoMoreHeadsThanAsked) {
  const HeadMap map = MapWith({{1, 1}, {1, 0}, {4, 0}, {2, 1}});
  const auto ranks =
      OrderDenseHeads(eval_, Needles(2, 3), {.num_heads = 3, .eos_token_ids = {}}, map, observer_);
  ASSERT_TRUE(ranks.ok());
  EXPECT_EQ(std::count(ranks->begin(), ranks->end(), -1), 9);
  EXPECT_EQ((*ranks)[2 * kHeads + 1], -1);  // the lowest score
}

TEST_F(ValidationTest, TheRightAnswerOfATextPromptIsWhatTheFullCacheSays) {
  const HeadMap map = MapWith({{4, 0}, {2, 1}, {1, 1}, {5, 0}, {1, 0}});
  const std::vector<NeedlePrompt> exact = Needles(4, 3);
  const auto wanted = OrderDenseHeads(eval_, exact, {}, map, observer_);
  ASSERT_TRUE(wanted.ok());
  // The code is all that the model says but its first token; the lead of `text` is not. So all
  // tokens count: those of the code and the one before it.
  std::vector<NeedlePrompt> text = exact;
  std::vector<NeedlePrompt> forced = exact;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::vector<int32_t> answer = std::move(text[i].answer);
    ASSERT_GT(answer.size(), 1u);
    text[i].answer.clear();
    text[i].candidates = {{answer.begin() + 1, answer.end()}};
    text[i].lead = {answer.back(), answer.back()};
    forced[i].answer.clear();
    forced[i].candidates = text[i].candidates;
    forced[i].lead = {answer.front()};
  }
  const auto own = OrderDenseHeads(eval_, text, {}, map, observer_);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(*own, *wanted);
  // Where it does not say the code in time: the lead and the code.
  const auto fallback =
      OrderDenseHeads(eval_, forced, {.max_answer = 1, .eos_token_ids = {}}, map, observer_);
  ASSERT_TRUE(fallback.ok());
  EXPECT_EQ(*fallback, *wanted);
}

TEST_F(ValidationTest, TextThatTheFullCacheDoesNotAnswerIsLeftOut) {
  const HeadMap map = MapWith({{4, 0}, {2, 1}, {1, 1}, {5, 0}, {1, 0}, {3, 1}, {0, 0}});
  std::vector<NeedlePrompt> prompts = Needles(4, 3);
  std::set<int32_t> first_tokens;
  for (NeedlePrompt& prompt : prompts) {
    first_tokens.insert(prompt.answer.front());
    prompt.candidates = {{prompt.answer.back()}};
    prompt.lead = {prompt.answer.back(), prompt.answer.back()};
    prompt.answer.clear();
  }
  const auto own = OrderDenseHeads(eval_, prompts, {}, map, observer_);
  ASSERT_TRUE(own.ok());
  std::vector<NeedlePrompt> more = prompts;
  for (NeedlePrompt prompt : Needles(8, 9)) {
    prompt.answer.clear();
    prompt.candidates = {{kVocabulary - 1}};  // never said
    prompt.lead = {kVocabulary - 2};
    more.push_back(prompt);
  }
  const auto same = OrderDenseHeads(eval_, more, {}, map, observer_);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(*same, *own);
  // Prompts are opened until as many are answered as are measured, whatever stands between them.
  std::rotate(more.begin(), more.begin() + 2, more.end());
  for (NeedlePrompt prompt : Needles(6, 17)) {
    prompt.candidates = {{prompt.answer.back()}};
    prompt.answer.clear();
    more.push_back(prompt);
  }
  std::vector<NeedlePrompt> turned = prompts;
  std::rotate(turned.begin(), turned.begin() + 2, turned.end());
  DenseOrderOptions four;
  four.num_samples = 4;
  const auto first = OrderDenseHeads(eval_, more, four, map, observer_);
  const auto alone = OrderDenseHeads(eval_, turned, {}, map, observer_);
  ASSERT_TRUE(first.ok() && alone.ok());
  EXPECT_EQ(*first, *alone);
  // An end of turn ends the answer. Where none is left, the code is expected behind the lead.
  DenseOrderOptions ended;
  ended.eos_token_ids.assign(first_tokens.begin(), first_tokens.end());
  const auto lead = OrderDenseHeads(eval_, prompts, ended, map, observer_);
  const auto late =
      OrderDenseHeads(eval_, prompts, {.max_answer = 1, .eos_token_ids = {}}, map, observer_);
  ASSERT_TRUE(lead.ok() && late.ok());
  EXPECT_EQ(*lead, *late);
  EXPECT_NE(*lead, *own);
}

TEST_F(ValidationTest, NothingIsOrderedWithoutAnswersOrWithOneHead) {
  const std::vector<int32_t> none(12, -1);
  EXPECT_EQ(*OrderDenseHeads(eval_, {}, {}, MapWith({{1, 0}, {1, 1}}), observer_), none);
  EXPECT_EQ(*OrderDenseHeads(eval_, Needles(2, 3), {}, MapWith({{1, 0}}), observer_), none);
}

TEST_F(ValidationTest, AMapOfTheHeadsThatFetchPasses) {
  HeadMap map = MapWith({{1, 1}, {1, 0}});
  map.tsp.candidates = {{.layer = 1}, {.layer = 4}};
  ValidationOptions options;
  options.min_prompts = 0;
  const Status status = ValidateMap(eval_, Material(8), options, observer_, &map);
  ASSERT_TRUE(status.ok()) << StatusMessage(status);
  EXPECT_EQ(map.validation.status, "pass") << ::testing::PrintToString(map.validation.reasons);
  EXPECT_EQ(map.validation.documents, 3);
  EXPECT_EQ(map.validation.needles, 8);
  EXPECT_EQ(map.validation.front.size(),
            options.retentions_ppm.size() * options.dense_shares_ppm.size());
  ASSERT_EQ(map.spend.size(), 3u);
  for (const engine::SpendPlan& plan : map.spend) {
    EXPECT_EQ(plan.points.size(), options.retentions_ppm.size());
  }
  // At rho .2 two whole heads of twelve fit: all answers, where uniform budgets lose them.
  int num_adaptive = 0;
  for (const engine::ValidationRow& row : map.validation.rows) {
    if (row.policy == "adaptive") {
      ++num_adaptive;
      EXPECT_TRUE(row.retention_ppm < 200'000 || row.unseen_ppm == kPpm) << row.retention_ppm;
    } else if (row.policy == "fastkv" && row.retention_ppm <= 200'000) {
      EXPECT_LT(row.unseen_ppm, kPpm);
    }
    EXPECT_NEAR(static_cast<double>(row.entries_ppm), static_cast<double>(row.retention_ppm),
                60'000);  // sinks and window at rho .1 of 192 tokens
  }
  EXPECT_EQ(num_adaptive, 4);
  for (const engine::TspCandidate& candidate : map.tsp.candidates) {
    EXPECT_TRUE(candidate.validated);
    EXPECT_GE(candidate.seen_ppm, 0);
  }
}

TEST_F(ValidationTest, AMapOfTheWrongHeadsDoesNotAnswer) {
  HeadMap right = MapWith({{1, 1}, {1, 0}});
  HeadMap wrong = MapWith({{4, 1}, {3, 0}});
  const ValidationMaterial material = Material(8);
  ValidationOptions options;
  options.retentions_ppm = {200'000};
  options.dense_shares_ppm = {1'000'000};
  ASSERT_TRUE(ValidateMap(eval_, material, options, observer_, &right).ok());
  ASSERT_TRUE(ValidateMap(eval_, material, options, observer_, &wrong).ok());
  EXPECT_EQ(right.validation.front[0].unseen_ppm, kPpm);
  EXPECT_LT(wrong.validation.front[0].unseen_ppm, kPpm / 2);
  EXPECT_NE(right.validation.status, "fail");
  EXPECT_EQ(wrong.validation.status, "fail");  // fastkv answers all seen and a quarter unseen
  EXPECT_EQ(wrong.validation.reasons.back(),
            "at retention 0.2: fewer needles answered than with uniform fastkv");
}

TEST_F(ValidationTest, FewPromptsLeaveAMapUnvalidated) {
  HeadMap map = MapWith({{1, 1}, {1, 0}});
  map.profile.corpus.emplace_back().prompts = 99;
  ValidationOptions options;
  options.retentions_ppm = {200'000};
  options.dense_shares_ppm = {900'000};
  ASSERT_TRUE(ValidateMap(eval_, Material(2), options, observer_, &map).ok());
  EXPECT_EQ(map.validation.status, "unvalidated");
  EXPECT_EQ(map.validation.reasons, std::vector<std::string>{"99 prompts, wanted at least 100"});
}

TEST_F(ValidationTest, CanBeCancelledAndNeedsMaterial) {
  HeadMap map = MapWith({{1, 1}, {1, 0}});
  EXPECT_EQ(StatusMessage(ValidateMap(eval_, {}, {}, observer_, &map)),
            "validation: no document and no needle is held out, wanted one at least");
  observer_.cancel_at = 2000;
  EXPECT_EQ(ValidateMap(eval_, Material(2), {}, observer_, &map).code(), StatusCode::kCancelled);
  EXPECT_EQ(OrderDenseHeads(eval_, Needles(2, 3), {}, map, observer_).status().code(),
            StatusCode::kCancelled);
}

TEST(ValidationMaterialTest, HeldOutPromptsBecomeDocumentsAndTheirNeedlesTasks) {
  HeldOut held_out;
  for (const int32_t size : {300, 40, 700, 9000}) {
    ProfilePrompt prompt;
    prompt.id = fmt::format("p{}", size);
    prompt.domain = "log";
    prompt.ids.assign(static_cast<size_t>(size), 65);
    held_out.prompts.push_back(std::move(prompt));
  }
  for (int32_t i = 0; i < 3; ++i) {
    NeedlePrompt needle;
    needle.id = fmt::format("n{}", i);
    needle.ids.assign(i == 1 ? 5000 : 50, 7);
    needle.split = 40;
    needle.answer = {i, 2 + i, 3};
    held_out.needles.push_back(std::move(needle));
  }
  const ValidationMaterial material = MakeValidationMaterial(held_out, nullptr, {});
  // A quarter of a document is predicted, 128 tokens at most: 512 are the fewest here.
  EXPECT_EQ(material.fidelity.continuation_tokens, 128);
  ASSERT_EQ(material.documents.size(), 2u);
  EXPECT_EQ(material.documents[0].id, "p700");
  EXPECT_EQ(material.documents[1].ids.size(), 4096u);  // of the longest context
  ASSERT_EQ(material.tasks.size(), 1u);
  ASSERT_EQ(material.tasks[0].prompts.size(), 2u);  // the long one does not fit
  EXPECT_EQ(material.tasks[0].prompts[1].id, "n2");
  EXPECT_TRUE(material.tasks[0].prompts[0].candidates.empty());  // answers count, not ranks
}

TEST(ValidationMaterialTest, ShortPromptsGiveNothing) {
  HeldOut held_out;
  held_out.prompts.emplace_back().ids.assign(60, 65);
  const ValidationMaterial material = MakeValidationMaterial(held_out, nullptr, {});
  EXPECT_TRUE(material.documents.empty());
  EXPECT_TRUE(material.tasks.empty());
}

}  // namespace
}  // namespace headroom::profiler
