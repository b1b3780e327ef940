// Prompts of token ids: what a file says, and what it may not say.
#include "profiler/profile_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PromptLimits Ids(int32_t max_tokens = 100) {
  return {.format = nullptr, .vocab_size = 50, .max_tokens = max_tokens};
}

TEST(ProfilePromptsTest, ReadsIdsWithTheirLabels) {
  ProfileInput input;
  ASSERT_TRUE(ReadPromptLines("{\"token_ids\":[1,2,3],\"id\":\"a\",\"domain\":\"code\","
                              "\"weight\":2.5,\"continuation\":[4]}\n\n{\"token_ids\":[7]}\n",
                              "f.jsonl", Ids(), &input)
                  .ok());
  ASSERT_EQ(input.prompts.size(), 2u);
  EXPECT_THAT(input.prompts[0].ids, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(input.prompts[0].domain, "code");
  EXPECT_EQ(input.prompts[0].weight, 2.5);
  EXPECT_EQ(input.prompts[1].id, "f.jsonl:3");
  EXPECT_EQ(input.prompts[1].domain, "text");
}

TEST(ProfilePromptsTest, LongPromptsKeepTheirEnds) {
  ProfileInput input;
  ASSERT_TRUE(ReadPromptLines("{\"token_ids\":[1,2,3,4,5,6,7]}", "f", Ids(4), &input).ok());
  EXPECT_THAT(input.prompts[0].ids, ElementsAre(1, 2, 6, 7));
  EXPECT_EQ(input.num_cut, 1);
}

TEST(ProfilePromptsTest, ErrorsNameFileAndLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"token_ids\":[1]", "wanted one JSON value"},
      {"[1,2]", "wanted a JSON object"},
      {"{\"token_ids\":[1],\"text\":\"x\"}", "got 2 of"},
      {"{\"id\":\"x\"}", "got 0 of"},
      {"{\"token_ids\":[50]}", "from 0 to 49"},
      {"{\"token_ids\":[-1]}", "from 0 to 49"},
      {"{\"token_ids\":[]}", "token ids"},
      {"{\"token_ids\":[1],\"tpyo\":1}", "unknown member \"tpyo\""},
      {"{\"token_ids\":[1],\"id\":\"first\"}", "twice"},
      {"{\"token_ids\":[1],\"weight\":0}", "weight"},
      {"{\"token_ids\":[1],\"weight\":\"1\"}", "weight"},
      {"{\"token_ids\":[1],\"domain\":\"\"}", "domain"},
      {"{\"text\":\"x\"}", "no tokenizer"},
      {"{\"token_ids\":[1,2,3],\"needles\":[{\"start\":0,\"end\":1}]}", "continuation"},
      {"{\"token_ids\":[1,2,3],\"needles\":[{\"start\":0,\"end\":9}],\"continuation\":[1]}",
       "wanted a range"},
      {"{\"token_ids\":[1,2,3],\"needles\":[{\"start\":-1,\"end\":1}],\"continuation\":[1]}",
       "start and end"},
  };
  for (const auto& [line, wanted] : cases) {
    ProfileInput input;
    const Status status = ReadPromptLines(
        "{\"token_ids\":[1],\"id\":\"first\"}\n" + std::string(line), "bad.jsonl", Ids(), &input);
    ASSERT_FALSE(status.ok()) << line;
    EXPECT_THAT(StatusMessage(status), HasSubstr("bad.jsonl:2")) << line;
    EXPECT_THAT(StatusMessage(status), HasSubstr(wanted)) << line;
  }
}

TEST(ProfilePromptsTest, WhatIsHiddenBecomesAProbeToo) {
  ProfileInput input;
  ASSERT_TRUE(
      ReadPromptLines("{\"context\":[9,9,20,31,32,9,9],\"question\":[40,20],\"answer\":[31,32],"
                      "\"needle_begin\":2,\"task\":\"1hop\",\"length\":11}\n"
                      "{\"token_ids\":[9,20,31,9,9,20],\"needles\":[{\"start\":1,\"end\":3}],"
                      "\"continuation\":[31]}",
                      "needles.jsonl", Ids(), &input)
          .ok());
  ASSERT_EQ(input.probes.size(), 2u);
  EXPECT_EQ(input.prompts.size(), 2u);
  EXPECT_THAT(input.prompts[0].ids, ElementsAre(9, 9, 20, 31, 32, 9, 9, 40, 20, 31, 32));
  ASSERT_EQ(input.probes[0].questions.size(), 1u);
  // Row 8 (the key) predicts 31, which stands at 3 in the context.
  EXPECT_EQ(input.probes[0].questions[0].copies[0].row, 8);
  EXPECT_EQ(input.probes[0].questions[0].copies[0].source, 3);
  EXPECT_EQ(input.probes[1].questions[0].copies[0].source, 2);
}

TEST(ProfilePromptsTest, OrderAndSampleDependOnContentsAlone) {
  std::vector<std::string> lines;
  for (int i = 0; i < 20; ++i) {
    lines.push_back("{\"token_ids\":[" + std::to_string(i) + "]}\n");
  }
  const auto read = [&](bool reversed) {
    ProfileInput input;
    std::string text;
    for (const std::string& line : lines) {
      text = reversed ? line + text : text + line;
    }
    EXPECT_TRUE(ReadPromptLines(text, "f", Ids(), &input).ok());
    SortAndLimit(8, &input);
    std::vector<int32_t> ids;
    for (const ProfilePrompt& prompt : input.prompts) {
      ids.push_back(prompt.ids[0]);
    }
    return ids;
  };
  EXPECT_EQ(read(false).size(), 8u);
  EXPECT_EQ(read(false), read(true));
}

TEST(ProfilePromptsTest, CutsToEveryLengthThatAPromptHas) {
  ProfileInput input;
  ASSERT_TRUE(ReadPromptLines("{\"token_ids\":[1,2,3,4,5,6]}\n{\"token_ids\":[1,2,3]}\n"
                              "{\"token_ids\":[8]}",
                              "f", Ids(), &input)
                  .ok());
  CutToLengths({2, 4}, &input);
  std::vector<size_t> sizes;
  for (const ProfilePrompt& prompt : input.prompts) {
    sizes.push_back(prompt.ids.size());
  }
  EXPECT_THAT(sizes, ::testing::UnorderedElementsAre(2, 4, 2, 1));
}

TEST(ProfilePromptsTest, HeldOutNeedlesLeaveTheProbes) {
  ProfileInput input;
  std::string lines;
  for (int i = 0; i < 6; ++i) {
    lines += fmt::format(R"({{"context": [1, {0}, 3, 4], "question": [5, {0}], "answer": [3]}})"
                         "\n",
                         10 + i);
  }
  ASSERT_TRUE(ReadPromptLines(lines, "n.jsonl", Ids(), &input).ok());
  SortAndLimit(100, &input);
  const HeldOut held_out = TakeHeldOut(2, &input);
  ASSERT_EQ(held_out.prompts.size(), 2u);
  ASSERT_EQ(held_out.needles.size(), 2u);
  ASSERT_EQ(input.probes.size(), 4u);
  ASSERT_EQ(input.needles.size(), 4u);
  for (const NeedlePrompt& needle : held_out.needles) {
    EXPECT_EQ(needle.ids.size(), 6u);
    EXPECT_EQ(needle.split, 4);
    EXPECT_EQ(needle.answer, std::vector<int32_t>{3});
    for (const ProbePrompt& probe : input.probes) {
      EXPECT_NE(probe.ids[1], needle.ids[1]);
    }
  }
  for (size_t i = 0; i < input.probes.size(); ++i) {
    EXPECT_EQ(input.probes[i].ids[1], input.needles[i].ids[1]);
  }
}

TEST(ProfilePromptsTest, HeldOutPromptsLeaveTheProfile) {
  ProfileInput input;
  for (int32_t i = 0; i < 10; ++i) {
    ProfilePrompt prompt;
    prompt.ids = {i};
    AddPrompt(prompt, Ids(), &input);
  }
  const std::vector<ProfilePrompt> held_out = TakeHeldOut(3, &input).prompts;
  EXPECT_EQ(held_out.size(), 3u);
  EXPECT_EQ(input.prompts.size(), 7u);
  for (const ProfilePrompt& held : held_out) {
    for (const ProfilePrompt& kept : input.prompts) {
      EXPECT_NE(held.ids, kept.ids);
    }
  }
}

}  // namespace
}  // namespace headroom::profiler
