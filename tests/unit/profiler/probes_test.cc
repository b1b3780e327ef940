// Probes: where prompts hide what has to be fetched, and which heads fetch it.
#include "profiler/probes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "profiler/evaluation/needle_generator.h"
#include "tests/unit/profiler/profiled_model.h"

namespace headroom::profiler {
namespace {

using headroom::testing::TickingClock;

std::string Haystack(size_t size) {
  std::string text;
  for (int i = 0; text.size() < size; ++i) {
    text += "Sentence number " + std::to_string(i) + " says little. ";
  }
  return text;
}

std::vector<NeedlePrompt> IdNeedles(const std::string& task, int32_t count) {
  auto prompts = MakeIdNeedles(task, Haystack(5000), {.length = 256, .count = count}, 512);
  EXPECT_TRUE(prompts.ok());
  return *prompts;
}

TEST(IdProbeTest, SourcesAreTheTokensOfTheRecordThatIsAskedFor) {
  for (const NeedlePrompt& prompt : IdNeedles("1hop", 20)) {
    const auto probe = MakeIdProbe(prompt);
    ASSERT_TRUE(probe.ok()) << StatusMessage(probe.status());
    const ProbeQuestion& question = probe->questions.at(0);
    const auto record = static_cast<int32_t>(std::lround(prompt.depth * prompt.split));
    ASSERT_EQ(question.copies.size(), 3u);
    for (int32_t j = 0; j < 3; ++j) {
      const ProbeCopy& copy = question.copies[static_cast<size_t>(j)];
      EXPECT_EQ(copy.source, record + 1 + j) << prompt.id;
      EXPECT_EQ(copy.row, static_cast<int32_t>(prompt.ids.size()) - 1 + j) << prompt.id;
    }
    ASSERT_EQ(question.needles.size(), 1u);
    EXPECT_EQ(question.needles[0].begin, record);
    EXPECT_EQ(question.needles[0].end, record + 4);
  }
}

TEST(IdProbeTest, TwoHopsHaveTheirAliasAndTheirRecordAsSources) {
  for (const NeedlePrompt& prompt : IdNeedles("2hop", 20)) {
    const auto probe = MakeIdProbe(prompt);
    ASSERT_TRUE(probe.ok());
    for (const ProbeCopy& copy : probe->questions[0].copies) {
      const auto source = static_cast<size_t>(copy.source);
      const auto row = static_cast<size_t>(copy.row);
      EXPECT_EQ(probe->ids[source], probe->ids[row + 1]);
      EXPECT_EQ(probe->ids[source - 1], probe->ids[row]);
      EXPECT_LT(copy.source, prompt.split);
    }
    EXPECT_EQ(probe->questions[0].copies.size(), 5u);
  }
}

TEST(IdProbeTest, SpansOutsideTheContextAreRefused) {
  const NeedlePrompt prompt = IdNeedles("1hop", 1)[0];
  const auto probe = MakeIdProbe(prompt, {{10, prompt.split + 1}});
  ASSERT_FALSE(probe.ok());
  EXPECT_NE(StatusMessage(probe.status()).find("inside the context"), std::string::npos);
  EXPECT_FALSE(MakeIdProbe(prompt, {{0, 2}}).ok());  // holds no token of the answer
}

// Of a KV head, the best of its group and the mean over probes.
std::vector<double> HeadScores(PromptReader& reader, const std::vector<ProbePrompt>& probes) {
  const int32_t group = reader.group_size();
  std::vector<double> scores(static_cast<size_t>(reader.num_layers() * reader.num_kv_heads()), 0.0);
  for (const ProbePrompt& probe : probes) {
    const ProbeRecord record = MeasureProbe(reader, probe);
    for (size_t head = 0; head < scores.size(); ++head) {
      const auto first = record.copy_ppm.begin() + static_cast<int64_t>(head) * group;
      scores[head] +=
          *std::max_element(first, first + group) / 1e6 / static_cast<double>(probes.size());
    }
  }
  return scores;
}

// The independent study of these models finds the retrieval heads in layer 1, at .88 and 1.0, and
// every other head at .08 or less (.1 and below for two hops, where fewer prompts were read).
TEST(ProbeTest, FindsTheRetrievalHeadsOfTheNeedleModels) {
  for (const std::string task : {"1hop", "2hop"}) {
    ProfiledModel model("builtin:needle-" + task, 1, 512);
    const auto reader = model.MakeReader(512);
    std::vector<ProbePrompt> probes;
    for (const NeedlePrompt& prompt : IdNeedles(task, 8)) {
      probes.push_back(*MakeIdProbe(prompt));
    }
    const std::vector<double> scores = HeadScores(*reader, probes);
    for (size_t head = 0; head < scores.size(); ++head) {
      const bool is_retrieval = head / 2 == 1;
      EXPECT_EQ(scores[head] > 0.85, is_retrieval) << task << " head " << head << scores[head];
      EXPECT_EQ(scores[head] > 0.3, is_retrieval) << task << " head " << head << scores[head];
    }
  }
}

TEST(ProbeTest, RecordsDependNeitherOnChunksNorOnThreads) {
  const ProbePrompt probe = *MakeIdProbe(IdNeedles("1hop", 1)[0]);
  const ProbePrompt blocks = MakeBlockProbes(nullptr, 512, 4, {.length = 200, .count = 1})[0];
  ProfiledModel whole("builtin:needle-1hop", 1, 512);
  ProfiledModel pieces("builtin:needle-1hop", 3, 37);
  for (const ProbePrompt& each : {probe, blocks}) {
    const ProbeRecord a = MeasureProbe(*whole.MakeReader(512), each);
    const ProbeRecord b = MeasureProbe(*pieces.MakeReader(512), each);
    EXPECT_EQ(a.copy_ppm, b.copy_ppm);
    EXPECT_EQ(a.induction_ppm, b.induction_ppm);
    EXPECT_GT(*std::max_element(a.copy_ppm.begin(), a.copy_ppm.end()), 0);
  }
}

TEST(BlockProbeTest, RepeatsOneBlockOfDrawnTokens) {
  const auto probes = MakeBlockProbes(nullptr, 512, 4, {.length = 400, .count = 2, .seed = 5});
  ASSERT_EQ(probes.size(), 2u);
  EXPECT_NE(probes[0].ids, probes[1].ids);
  for (const ProbePrompt& probe : probes) {
    ASSERT_EQ(probe.block_tokens, 100);
    ASSERT_EQ(probe.ids.size(), 400u);
    for (size_t i = 100; i < 400; ++i) {
      EXPECT_EQ(probe.ids[i], probe.ids[i - 100]);
    }
  }
}

class TextProbeTest : public ::testing::Test {
 protected:
  TextProbeTest() : model_("builtin:tiny", 1, 512) {
    for (const char* text : {"A quiet day. The road went on. ", "Rain fell on the roofs. "}) {
      std::string filler;
      for (int i = 0; i < 20; ++i) {
        filler += text;
      }
      fillers_.push_back(tokenizer().Encode(filler, false, false));
    }
  }
  const models::Tokenizer& tokenizer() const { return *model_.loaded().tokenizer; }

  TickingClock clock_;
  ProfiledModel model_;
  std::vector<std::vector<int32_t>> fillers_;
};

TEST_F(TextProbeTest, HidesACodeAndForcesItAsTheAnswer) {
  const TextFormat format = {.tokenizer = tokenizer(), .chat_template = nullptr, .clock = clock_};
  const auto probes =
      MakeTextProbes(format, fillers_, {.length = 500, .count = 6, .num_needles = 3, .seed = 2});
  ASSERT_TRUE(probes.ok()) << StatusMessage(probes.status());
  double last_depth = 0.0;
  for (const ProbePrompt& probe : *probes) {
    ASSERT_EQ(probe.questions.size(), 1u);
    const ProbeQuestion& question = probe.questions[0];
    ASSERT_EQ(question.copies.size(), 4u);  // the digits, a byte each
    for (const ProbeCopy& copy : question.copies) {
      EXPECT_EQ(probe.ids[static_cast<size_t>(copy.row) + 1],
                probe.ids[static_cast<size_t>(copy.source)]);
      EXPECT_GE(copy.source, question.needles[0].begin);
      EXPECT_LT(copy.source, question.needles[0].end);
      EXPECT_GE(copy.row, question.asking.begin);
    }
    EXPECT_EQ(question.copies.back().row + 2, static_cast<int32_t>(probe.ids.size()));
    std::string sentence;
    for (int32_t i = question.needles[0].begin; i < question.needles[0].end; ++i) {
      sentence += tokenizer().TokenBytes(probe.ids[static_cast<size_t>(i)]);
    }
    EXPECT_TRUE(sentence.starts_with("Note that the ") && sentence.ends_with('.')) << sentence;
    const double depth = static_cast<double>(question.needles[0].begin) / question.asking.begin;
    EXPECT_GT(depth, last_depth - 0.35);  // in order but for other needles in front
    last_depth = depth;
    EXPECT_NEAR(static_cast<double>(question.asking.begin), 500, 60);
  }
}

TEST_F(TextProbeTest, SaysWhenThereIsTooLittleText) {
  const TextFormat format = {.tokenizer = tokenizer(), .chat_template = nullptr, .clock = clock_};
  EXPECT_FALSE(MakeTextProbes(format, {}, {}).ok());
  const auto probes = MakeTextProbes(format, fillers_, {.length = 5000, .count = 1});
  ASSERT_FALSE(probes.ok());
  EXPECT_NE(StatusMessage(probes.status()).find("tokens of text"), std::string::npos);
}

}  // namespace
}  // namespace headroom::profiler
