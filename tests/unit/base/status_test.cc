#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/check.h"

namespace headroom {
namespace {

Status FailWhen(bool fails, int* num_calls) {
  ++*num_calls;
  if (fails) {
    return InvalidArgument("model.gguf: tensor {}: got {} rows, wanted {}", "output", 3, 4);
  }
  return OkStatus();
}

Status RunBoth(bool first_fails, int* num_calls) {
  HEADROOM_RETURN_IF_ERROR(FailWhen(first_fails, num_calls));
  HEADROOM_RETURN_IF_ERROR(FailWhen(false, num_calls));
  return OkStatus();
}

StatusOr<std::unique_ptr<int>> MakeInt(bool fails) {
  if (fails) {
    return ResourceExhausted("no ints left");
  }
  return std::make_unique<int>(42);
}

StatusOr<int> ReadInt(bool fails) {
  HEADROOM_ASSIGN_OR_RETURN(const std::unique_ptr<int> value, MakeInt(fails));
  return *value;
}

TEST(StatusTest, MessageIsFormattedAndReadBack) {
  int num_calls = 0;
  const Status status = FailWhen(true, &num_calls);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusMessage(status), "model.gguf: tensor output: got 3 rows, wanted 4");
}

TEST(StatusTest, ReturnIfErrorStopsAtTheFirstError) {
  int num_calls = 0;
  EXPECT_TRUE(RunBoth(false, &num_calls).ok());
  EXPECT_EQ(num_calls, 2);
  num_calls = 0;
  EXPECT_EQ(RunBoth(true, &num_calls).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(num_calls, 1);
}

TEST(StatusTest, AssignOrReturnMovesTheValueOrReturnsTheError) {
  EXPECT_EQ(ReadInt(false).value(), 42);
  const StatusOr<int> failed = ReadInt(true);
  EXPECT_EQ(failed.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusMessage(failed.status()), "no ints left");
}

TEST(StatusTest, EachHelperGivesItsCode) {
  EXPECT_EQ(NotFound("x").code(), StatusCode::kNotFound);
  EXPECT_EQ(FailedPrecondition("x").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(OutOfRange("x").code(), StatusCode::kOutOfRange);
  EXPECT_EQ(Unimplemented("x").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Unavailable("x").code(), StatusCode::kUnavailable);
  EXPECT_EQ(Internal("x").code(), StatusCode::kInternal);
}

TEST(CheckDeathTest, NamesTheConditionThatFailed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(HEADROOM_CHECK(1 + 1 == 3), "CHECK failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace headroom
