// The block formats against what the PyPI package `gguf` makes of the same bytes.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/dequantize.h"
#include "tests/support/test_data.h"

namespace headroom::models {
namespace {

struct Golden {
  std::vector<uint8_t> bytes;
  std::vector<float> values;
};

// A line holds the dtype, the stored bytes in hexadecimal, and the bits of each value.
Golden ReadGolden(const std::string& dtype) {
  std::ifstream file(testing::SourcePath("tests/data/dequantize.txt"));
  Golden golden;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word != dtype) {
      continue;
    }
    words >> word;
    for (size_t i = 0; i + 1 < word.size(); i += 2) {
      golden.bytes.push_back(static_cast<uint8_t>(std::stoul(word.substr(i, 2), nullptr, 16)));
    }
    while (words >> word) {
      golden.values.push_back(
          std::bit_cast<float>(static_cast<uint32_t>(std::stoul(word, nullptr, 16))));
    }
  }
  return golden;
}

class DequantizeGoldenTest : public ::testing::TestWithParam<DType> {};

TEST_P(DequantizeGoldenTest, GivesTheSameFloats) {
  const DTypeInfo info = GetDTypeInfo(GetParam());
  const Golden golden = ReadGolden(info.name);
  const auto count = static_cast<int64_t>(golden.values.size());
  ASSERT_GT(count, 0);
  ASSERT_EQ(static_cast<int64_t>(golden.bytes.size()), RowBytes(GetParam(), count));
  std::vector<float> values(golden.values.size());
  kernels::DequantizeRow(GetParam(), golden.bytes.data(), count, values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], golden.values[i]) << info.name << " element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, DequantizeGoldenTest,
                         ::testing::Values(DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                                           DType::kQ4_1, DType::kQ5_0, DType::kQ5_1),
                         [](const auto& param) {
                           return std::string(GetDTypeInfo(param.param).name);
                         });

}  // namespace
}  // namespace headroom::models
