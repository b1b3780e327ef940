// Needle prompts (made, read, encoded) and how they are measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/cpu/cpu_backend.h"
#include "models/model_files.h"
#include "profiler/evaluation/needle_files.h"
#include "profiler/evaluation/needle_generator.h"
#include "profiler/evaluation/needles.h"
#include "tests/support/fake_clock.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/oracle_forward.h"

namespace headroom::profiler {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kQuery = 511;
constexpr int32_t kAlias = 509;

std::string Haystack(size_t size) {
  std::string text;
  for (int i = 0; text.size() < size; ++i) {
    text += "Sentence number " + std::to_string(i) + " says little. ";
  }
  return text;
}

TEST(IdNeedlesTest, OneHopPromptsAskForARecordThatStandsAtTheirDepth) {
  const auto prompts = MakeIdNeedles("1hop", Haystack(5000), {.length = 256, .count = 40}, 512);
  ASSERT_TRUE(prompts.ok()) << StatusMessage(prompts.status());
  ASSERT_EQ(prompts->size(), 40u);
  for (const NeedlePrompt& prompt : *prompts) {
    ASSERT_EQ(prompt.ids.size() + prompt.answer.size(), 256u);
    ASSERT_EQ(prompt.split + 2, static_cast<int32_t>(prompt.ids.size()));
    EXPECT_EQ(prompt.ids[0], 510);
    EXPECT_EQ(prompt.ids[static_cast<size_t>(prompt.split)], kQuery);
    std::vector<int32_t> record = {prompt.ids.back()};
    record.insert(record.end(), prompt.answer.begin(), prompt.answer.end());
    const auto begin = static_cast<int64_t>(std::lround(prompt.depth * prompt.split));
    EXPECT_TRUE(std::equal(record.begin(), record.end(), prompt.ids.begin() + begin)) << prompt.id;
    // The key stands once in the context and once in the question.
    EXPECT_EQ(std::count(prompt.ids.begin(), prompt.ids.end(), record[0]), 2);
  }
}

TEST(IdNeedlesTest, TwoHopAnswersFollowTheAlias) {
  const auto prompts = MakeIdNeedles("2hop", Haystack(5000), {.length = 512, .count = 20}, 512);
  ASSERT_TRUE(prompts.ok());
  for (const NeedlePrompt& prompt : *prompts) {
    ASSERT_EQ(prompt.answer.size(), 5u);
    EXPECT_EQ(prompt.answer[0], kAlias);
    const std::vector<int32_t> alias = {prompt.ids.back(), kAlias, prompt.answer[1]};
    EXPECT_NE(std::search(prompt.ids.begin(), prompt.ids.end(), alias.begin(), alias.end()),
              prompt.ids.end());
    EXPECT_NE(std::search(prompt.ids.begin(), prompt.ids.end(), prompt.answer.begin() + 1,
                          prompt.answer.end()),
              prompt.ids.end());
  }
}

TEST(IdNeedlesTest, TheSeedDecides) {
  const NeedleRequest request = {.length = 128, .count = 3, .seed = 7};
  NeedleRequest other = request;
  other.seed = 8;
  const auto a = MakeIdNeedles("1hop", Haystack(3000), request, 512);
  const auto b = MakeIdNeedles("1hop", Haystack(3000), request, 512);
  const auto c = MakeIdNeedles("1hop", Haystack(3000), other, 512);
  EXPECT_EQ((*a)[2].ids, (*b)[2].ids);
  EXPECT_NE((*a)[2].ids, (*c)[2].ids);
}

TEST(IdNeedlesTest, RefusesOtherVocabulariesShortTextsAndShortLengths) {
  EXPECT_THAT(StatusMessage(MakeIdNeedles("1hop", Haystack(3000), {}, 500).status()),
              HasSubstr("vocabulary of 512; this model's has 500"));
  EXPECT_THAT(StatusMessage(MakeIdNeedles("1hop", "short", {}, 512).status()),
              HasSubstr("5 ASCII bytes"));
  EXPECT_THAT(StatusMessage(MakeIdNeedles("1hop", Haystack(3000), {.length = 63}, 512).status()),
              HasSubstr("at least 64"));
}

TEST(CandidatesTest, ShareTheFirstTokenAndDifferBehindIt) {
  auto prompts = MakeIdNeedles("1hop", Haystack(5000), {.length = 128, .count = 30}, 512);
  AddCandidates(*prompts, 10, 1);
  for (const NeedlePrompt& prompt : *prompts) {
    ASSERT_EQ(prompt.candidates.size(), 10u);
    EXPECT_EQ(prompt.lead, std::vector<int32_t>{prompt.answer[0]});
    EXPECT_TRUE(std::equal(prompt.answer.begin() + 1, prompt.answer.end(),
                           prompt.candidates[0].begin(), prompt.candidates[0].end()));
    EXPECT_EQ(std::set(prompt.candidates.begin(), prompt.candidates.end()).size(), 10u);
  }
}

TEST(CandidatesTest, APromptAloneIsNotRanked) {
  auto prompts = MakeIdNeedles("1hop", Haystack(5000), {.length = 128, .count = 1}, 512);
  AddCandidates(*prompts, 10, 1);
  EXPECT_TRUE((*prompts)[0].candidates.empty());
  EXPECT_TRUE((*prompts)[0].lead.empty());
}

class TextNeedlesTest : public ::testing::Test {
 protected:
  TextNeedlesTest() : tokenizer_(models::CreateByteTokenizer({"<s>", "</s>"}, 0, 1)) {
    auto parsed =
        models::ChatTemplate::Parse("<s>{% for m in messages %}[{{ m.content }}]{% endfor %}>");
    EXPECT_TRUE(parsed.ok()) << StatusMessage(parsed.status());
    template_ = std::move(parsed).value();
  }

  TextFormat Format(bool chat) const {
    return {.tokenizer = *tokenizer_,
            .chat_template = chat ? template_.get() : nullptr,
            .clock = clock_};
  }
  std::string TextOf(const std::vector<int32_t>& ids) const {
    std::string text;
    for (const int32_t id : ids) {
      text += tokenizer_->TokenBytes(id);
    }
    return text;
  }

  std::unique_ptr<models::Tokenizer> tokenizer_;
  std::unique_ptr<models::ChatTemplate> template_;
  SteadyClock clock_;
};

TEST_F(TextNeedlesTest, HideTheAnswerOnceAtSentenceBoundariesOfEvenDepths) {
  const NeedleRequest request = {.length = 1000, .count = 10, .seed = 3};
  const auto needles = MakeTextNeedles(Format(true), Haystack(100'000), request);
  ASSERT_TRUE(needles.ok()) << StatusMessage(needles.status());
  std::set<std::string> contexts;
  for (size_t i = 0; i < needles->size(); ++i) {
    const TextNeedle& needle = (*needles)[i];
    const size_t is = needle.context.find(" is " + needle.answer + ". ");
    ASSERT_NE(is, std::string::npos);
    const size_t at = needle.context.rfind("The ", is);
    ASSERT_NE(at, std::string::npos);
    EXPECT_TRUE(at == 0 || needle.context.substr(at - 2, 2) == ". ");
    EXPECT_EQ("\n\nWhat is the " + needle.context.substr(at + 4, is - at - 4) + "?",
              needle.question);
    // A sentence of the haystack has at most 40 bytes.
    EXPECT_NEAR(needle.depth, (static_cast<double>(i) + 0.5) / 10.0, 0.1);
    const auto prompt = EncodeNeedle(Format(true), needle, 0, 1);
    ASSERT_TRUE(prompt.ok());
    EXPECT_NEAR(static_cast<double>(prompt->ids.size()), 1000.0, 20.0);
    contexts.insert(needle.context);
  }
  EXPECT_EQ(contexts.size(), 10u);
}

TEST_F(TextNeedlesTest, PromptsAreSplitWhereTheQuestionBegins) {
  for (const bool chat : {true, false}) {
    const auto prompt = EncodePrompt(Format(chat), "A needle here. ", "\n\nWhat is the code?");
    ASSERT_TRUE(prompt.ok()) << StatusMessage(prompt.status());
    const auto split = prompt->ids.begin() + prompt->split;
    EXPECT_EQ(TextOf({prompt->ids.begin(), split}),
              chat ? "[A needle here. \n\n" : "A needle here. \n\n");
    EXPECT_EQ(TextOf({split, prompt->ids.end()}),
              chat ? "What is the code?]>" : "What is the code?\n");
    EXPECT_EQ(TextOf({prompt->ids.begin(), prompt->ids.begin() + prompt->content_end}).back(), '?');
  }
}

TEST_F(TextNeedlesTest, CandidatesAreOtherCodesOfEqualLength) {
  const TextNeedle needle = {.id = "n",
                             .length = 0,
                             .depth = 0.0,
                             .context = "The door number for Oslo is 4711. ",
                             .question = "\nWhat is the door number for Oslo?",
                             .answer = "4711"};
  const auto prompt = EncodeNeedle(Format(true), needle, 10, 1);
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(TextOf(prompt->lead), "The door number for Oslo is");
  ASSERT_EQ(prompt->candidates.size(), 10u);
  EXPECT_EQ(TextOf(prompt->candidates[0]), " 4711");
  std::set<std::string> codes;
  for (const auto& candidate : prompt->candidates) {
    codes.insert(TextOf(candidate));
    EXPECT_EQ(candidate.size(), prompt->candidates[0].size());
  }
  EXPECT_EQ(codes.size(), 10u);
}

TEST_F(TextNeedlesTest, ErrorsSayWhatIsTooShort) {
  const std::string text = Haystack(20'000);
  EXPECT_THAT(StatusMessage(MakeTextNeedles(Format(true), text, {.length = 60}).status()),
              HasSubstr("wanted room for the question"));
  EXPECT_THAT(StatusMessage(MakeTextNeedles(Format(true), text, {.length = 5000}).status()),
              HasSubstr("--haystack: "));
  const auto hides = models::ChatTemplate::Parse("{{ messages[0].content | upper }}");
  TextFormat format = {.tokenizer = *tokenizer_, .chat_template = hides->get(), .clock = clock_};
  EXPECT_THAT(StatusMessage(EncodePrompt(format, "context", "question?").status()),
              HasSubstr("does not show the question"));
}

TEST(NeedleFilesTest, ReadIdsAndTexts) {
  const auto ids = ParseNeedles(
      "{\"id\":\"a\",\"length\":9,\"context\":[1,2,3,4],\"question\":[5],\"answer\":[6,7],"
      "\"needle_begin\":2}\n",
      "f", 10, 100);
  ASSERT_TRUE(ids.ok()) << StatusMessage(ids.status());
  const NeedlePrompt& prompt = std::get<0>(*ids).front();
  EXPECT_EQ(prompt.ids, (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(prompt.split, 4);
  EXPECT_EQ(prompt.depth, 0.5);
  EXPECT_EQ(prompt.length, 9);
  const auto texts = ParseNeedles(
      "{\"context\":\"c\",\"question\":\"q\",\"answer\":\"1\",\"depth\":0.25}\n", "f", 10, 100);
  ASSERT_TRUE(texts.ok());
  EXPECT_EQ(std::get<1>(*texts).front().id, "f:1");
  EXPECT_EQ(std::get<1>(*texts).front().depth, 0.25);
}

TEST(NeedleFilesTest, FaultsNameTheLine) {
  const std::string good = "{\"context\":[1],\"question\":[1],\"answer\":[1]}\n";
  for (const auto& [text, fault] : std::vector<std::pair<std::string, std::string>>{
           {"", "f: wanted at least one prompt"},
           {good + "{\"context\":\"x\",\"question\":\"q\",\"answer\":\"a\"}",
            "f:2: prompts of text and of ids"},
           {"{\"context\":[1],\"question\":[1]}",
            "f:1: wanted an object with a list of token ids \"answer\""},
           {"{\"context\":[1],\"question\":[1],\"answer\":[1],\"needle_begin\":2}",
            "f:1: needle_begin"},
           {"{\"context\":\"x\",\"question\":\"q\",\"answer\":\"\"}",
            "f:1: wanted a context and an answer"},
           {"{\"context\":\"x\",\"question\":\"q\",\"answer\":\"a\",\"depth\":-1}", "f:1: depth"},
           {"3", "f:1: wanted an object"},
       }) {
    const auto read = ParseNeedles(text, "f", 10, 100);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(StatusMessage(read.status()), HasSubstr(fault));
  }
}

class CountingObserver final : public EvalObserver {
 public:
  void Progress(int64_t done, int64_t total, const std::string&) override {
    last_done = done;
    last_total = total;
  }
  void Finished(const std::string&, int64_t, int64_t) override {}
  bool Cancelled() const override { return false; }
  int64_t last_done = 0;
  int64_t last_total = 0;
};

// The built-in needle model, which is known to answer its prompts with the full cache.
class NeedleMeasureTest : public ::testing::Test {
 protected:
  NeedleMeasureTest() : fixture_(Load(), Options(), Cpu()) {}

  static headroom::testing::KvFixtureOptions Options() {
    headroom::testing::KvFixtureOptions options;
    options.tsp_layer = 2;
    options.num_pages = 16;
    options.max_rows = 128;
    return options;
  }
  static std::unique_ptr<kernels::Backend> Cpu() {
    auto backend = kernels::CreateCpuBackend({.isa = "auto", .num_threads = 1});
    EXPECT_TRUE(backend.ok());
    return std::move(backend).value();
  }

  static models::LoadedModel Load() {
    auto model = models::LoadBuiltinModel("needle-1hop");
    EXPECT_TRUE(model.ok());
    return std::move(model).value();
  }

  static EvalRow Row(const std::string& policy, int64_t retention_ppm) {
    EvalRow row;
    row.policy = policy;
    row.retention_ppm = retention_ppm;
    row.spec = headroom::testing::MakeKvSpec(policy, retention_ppm, engine::kPpm);
    row.spec.window = 8;
    row.spec.sink_tokens = 4;
    return row;
  }

  StatusOr<std::unique_ptr<CacheSet>> Caches(const std::vector<EvalRow>& rows) {
    const EvalModel model = {.model = fixture_.model(),
                             .backend = fixture_.backend(),
                             .policies = fixture_.policies(),
                             .clock = clock_,
                             .shape = fixture_.shape(),
                             .attention_scale = fixture_.model().attention_scale(),
                             .max_rows = 128};
    return CacheSet::Create(model, rows, 160);
  }

  headroom::testing::KvFixture fixture_;
  headroom::testing::TickingClock clock_;
  CountingObserver observer_;
};

TEST_F(NeedleMeasureTest, FullAnswersAndStreamingForgets) {
  NeedleTask task;
  task.name = "1hop";
  auto prompts = MakeIdNeedles("1hop", Haystack(5000), {.length = 128, .count = 12}, 512);
  AddCandidates(*prompts, 4, 1);
  task.prompts = std::move(*prompts);
  const std::vector<EvalRow> rows = {ReferenceRow(kernels::KvDType::kF32),
                                     Row("streaming", 200'000)};
  auto caches = Caches(rows);
  ASSERT_TRUE(caches.ok());
  std::vector<NeedleReport> reports;
  ASSERT_TRUE(MeasureNeedles(task, {}, rows, **caches, observer_, &reports).ok());
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(observer_.last_done, observer_.last_total);
  for (NeedleReport& report : reports) {
    SummarizeNeedles(300, 1, &report);
    const NeedleSummary& full = *report.rows[0];
    const NeedleSummary& streaming = *report.rows[1];
    EXPECT_GE(full.right.value, 0.9);
    EXPECT_LE(streaming.right.value, 0.5);
    EXPECT_EQ(full.difference.value, 0.0);
    EXPECT_EQ(full.mcnemar_p, 1.0);
    EXPECT_NEAR(streaming.difference.value, streaming.right.value - full.right.value, 1e-12);
    EXPECT_GE(full.rank_accuracy->value, 0.9);
    EXPECT_GT(full.margin->value, streaming.margin->value);
    EXPECT_LT(streaming.physical_share, 0.5);
    int32_t heat = 0;
    int32_t total = 0;
    for (int32_t bin = 0; bin < kDepthBins; ++bin) {
      heat += full.heat[static_cast<size_t>(bin)][0];
      total += report.totals[static_cast<size_t>(bin)][0];
    }
    EXPECT_EQ(total, 12);
    EXPECT_EQ(heat, std::lround(full.right.value * 12));
  }
  // The context alone is compressed: two tokens fewer.
  EXPECT_LE(reports[1].scores[1][0].cost.entries, reports[0].scores[1][0].cost.entries);
}

// A row that got the first `num_right` of eight prompts right.
std::vector<NeedleScore> EightScores(int num_right) {
  std::vector<NeedleScore> scores(8);
  for (int i = 0; i < 8; ++i) {
    scores[static_cast<size_t>(i)].right = i < num_right;
    scores[static_cast<size_t>(i)].cost.physical_bytes = 1;
  }
  return scores;
}

// Beside a reference that is always right: 6, 7 and 1 prompts lost, p = 2/2^6, 2/2^7 and 1; the
// refused row is no comparison, so Holm multiplies by 2, 3 and 1.
TEST(NeedleSummaryTest, AdjustsPValuesForTheRowsThatRan) {
  NeedleReport report;
  report.prompts.assign(8, NeedleInfo{.id = "p", .length = 64});
  report.scores = {EightScores(8), EightScores(2), {}, EightScores(1), EightScores(7)};
  SummarizeNeedles(100, 1, &report);
  ASSERT_FALSE(report.rows[2].has_value());
  EXPECT_NEAR(report.rows[1]->mcnemar_p, 0.03125, 1e-12);
  EXPECT_NEAR(report.rows[1]->holm_p, 0.0625, 1e-12);
  EXPECT_NEAR(report.rows[3]->mcnemar_p, 0.015625, 1e-12);
  EXPECT_NEAR(report.rows[3]->holm_p, 0.046875, 1e-12);
  EXPECT_NEAR(report.rows[4]->holm_p, 1.0, 1e-12);
  EXPECT_EQ(report.rows[0]->holm_p, 1.0);
}

// Scores of candidates against log-probabilities of the double-precision forward pass.
TEST_F(NeedleMeasureTest, CandidateSumsAreThoseOfTheOracle) {
  headroom::testing::KvFixture tiny{headroom::testing::KvFixtureOptions{}};
  const std::vector<int32_t> prompt = headroom::testing::RandomTokens(20, 48, 4);
  const std::vector<int32_t> lead = {3, 9};
  const std::vector<std::vector<int32_t>> candidates = {{1, 2, 3}, {7, 7, 7}};
  SequenceRunner runner(tiny.model(), tiny.cache(), 8);
  DecodingSequence sequence =
      runner.Prefill({.ids = prompt, .content_end = 20},
                     headroom::testing::MakeKvSpec("full", engine::kPpm, engine::kPpm));
  std::vector<float> logits_of_lead;
  runner.Feed(sequence, lead, &logits_of_lead);
  const auto sums = runner.ScoreCandidates(sequence, candidates);
  runner.Close(sequence);
  for (size_t c = 0; c < candidates.size(); ++c) {
    headroom::testing::OracleInput input;
    input.tokens = prompt;
    input.tokens.insert(input.tokens.end(), lead.begin(), lead.end());
    input.tokens.insert(input.tokens.end(), candidates[c].begin(), candidates[c].end());
    input.num_prompt = 20;
    std::vector<int32_t> seen(20);
    for (int32_t i = 0; i < 20; ++i) {
      seen[static_cast<size_t>(i)] = i;
    }
    for (int32_t i = 20; i < 25; ++i) {
      seen.push_back(i);
      input.seen.emplace_back(3, std::vector<std::vector<int32_t>>(2, seen));
    }
    const auto logits = OracleLogits(tiny.loaded(), input);
    double expected = 0.0;
    for (size_t i = 0; i < 3; ++i) {
      double sum = 0.0;
      for (const double logit : logits[2 + i]) {
        sum += std::exp(logit);
      }
      expected += logits[2 + i][static_cast<size_t>(candidates[c][i])] - std::log(sum);
    }
    // The reference backend keeps f32 between ops.
    EXPECT_NEAR(sums[c], expected, 3e-4);
  }
  EXPECT_EQ(tiny.cache().num_sequences(), 0);
}

}  // namespace
}  // namespace headroom::profiler
