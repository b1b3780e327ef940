#include "models/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "tests/support/model_file_writers.h"

namespace headroom::models {
namespace {

using ::testing::HasSubstr;
using testing::Safetensors;

constexpr const char* kTwoTensors = R"({"__metadata__":{"format":"pt"},)"
                                    R"("b":{"dtype":"F16","shape":[2,3],"data_offsets":[8,20]},)"
                                    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )";

std::string ErrorOf(const std::vector<uint8_t>& bytes) {
  const StatusOr<std::vector<NamedTensor>> tensors = ParseSafetensors(bytes, "m.safetensors");
  return tensors.ok() ? "no error" : StatusMessage(tensors.status());
}

TEST(SafetensorsTest, ReadsTensorsByPlace) {
  const std::vector<uint8_t> bytes = Safetensors(kTwoTensors, 20);
  const StatusOr<std::vector<NamedTensor>> tensors = ParseSafetensors(bytes, "m.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].view.dtype, DType::kF32);
  EXPECT_EQ((*tensors)[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*tensors)[1].view.rows, 2);
  EXPECT_EQ((*tensors)[1].view.cols, 3);
  EXPECT_EQ((*tensors)[1].view.data, bytes.data() + bytes.size() - 12);
}

TEST(SafetensorsTest, ReadsAFileWithoutTensors) {
  EXPECT_TRUE(ParseSafetensors(Safetensors("{}", 0), "m.safetensors").ok());
}

TEST(SafetensorsTest, RefusesAFileCutAnywhere) {
  const std::vector<uint8_t> bytes = Safetensors(kTwoTensors, 20);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(ParseSafetensors(cut, "m.safetensors").ok()) << size;
  }
}

TEST(SafetensorsTest, SurvivesChangedBytes) {
  const std::vector<uint8_t> bytes = Safetensors(kTwoTensors, 20);
  const Philox random(9);
  for (uint64_t round = 0; round < 20000; ++round) {
    std::vector<uint8_t> changed = bytes;
    const std::array<uint32_t, 4> words = random.Block(round);
    changed[words[0] % changed.size()] = static_cast<uint8_t>(words[1]);
    changed[words[2] % changed.size()] = static_cast<uint8_t>(words[3]);
    (void)ParseSafetensors(changed, "m.safetensors");
  }
}

struct Attack {
  const char* name;
  std::string header;
  size_t num_data_bytes;
  const char* error;
};

std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

TEST(SafetensorsTest, RefusesEveryBrokenRuleWithTheReason) {
  const std::string nested = "{\"t\":" + std::string(100, '[') + std::string(100, ']') + "}";
  const Attack attacks[] = {
      {"no object", "[]", 0, "does not begin with '{'"},
      {"white space first", " {}", 0, "does not begin with '{'"},
      {"empty header", "", 0, "does not begin with '{'"},
      {"text after", "{} x", 0, "malformed JSON"},
      {"broken JSON", "{\"t\":}", 0, "malformed JSON at byte 6"},
      {"bad UTF-8", "{\"t\xff\":1}", 0, "malformed JSON"},
      {"deep", nested, 0, "nested 101 deep"},
      {"huge number", One("\"F32\"", "[1e999]", "[0,4]"), 4, "malformed JSON"},
      {"duplicate tensor",
       R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "\"t\" appears twice"},
      {"duplicate field", R"({"t":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "\"dtype\" appears twice"},
      {"metadata that is no text", R"({"__metadata__":{"a":1}})", 0, "wanted a string"},
      {"metadata that is no object", R"({"__metadata__":[]})", 0, "wanted an object"},
      {"missing field", R"({"t":{"dtype":"F32","shape":[1]}})", 4, "wants exactly"},
      {"unknown field", R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4,
       "wants exactly"},
      {"tensor that is no object", R"({"t":7})", 4, "wants exactly"},
      {"unread dtype", One("\"F8_E4M3\"", "[4]", "[0,4]"), 4, "has dtype F8_E4M3, wanted F32"},
      {"dtype that is no text", One("3", "[4]", "[0,4]"), 4, "has dtype number"},
      {"five dimensions", One("\"F32\"", "[1,1,1,1,1]", "[0,4]"), 4, "at most 4 dimensions"},
      {"dimension 0", One("\"F32\"", "[0]", "[0,0]"), 0, "no positive integer"},
      {"negative dimension", One("\"F32\"", "[-1]", "[0,4]"), 4, "no positive integer"},
      {"fraction", One("\"F32\"", "[1.0]", "[0,4]"), 4, "no positive integer"},
      {"overflow", One("\"F32\"", "[4611686018427387904,4]", "[0,4]"), 4, "too large"},
      {"one offset", One("\"F32\"", "[1]", "[0]"), 4, "no pair"},
      {"negative offset", One("\"F32\"", "[1]", "[-4,0]"), 4, "no pair"},
      {"offset above 63 bits", One("\"F32\"", "[1]", "[0,18446744073709551615]"), 4, "no pair"},
      {"reversed range", One("\"F32\"", "[1]", "[4,0]"), 4, "begins at 4"},
      {"past the end", One("\"F32\"", "[2]", "[0,8]"), 4, "ends at 8"},
      {"range too short", One("\"F32\"", "[2]", "[0,4]"), 4, "has 4 bytes, wanted 8"},
      {"hole at the start", One("\"F32\"", "[1]", "[4,8]"), 8, "leave a hole"},
      {"trailing bytes", One("\"F32\"", "[1]", "[0,4]"), 5, "1 bytes after the last tensor"},
      {"hole",
       R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("u":{"dtype":"F32","shape":[1],"data_offsets":[5,9]}})",
       9, "leave a hole"},
      {"overlap",
       R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("u":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "tensors overlap"},
  };
  for (const Attack& attack : attacks) {
    EXPECT_THAT(ErrorOf(Safetensors(attack.header, attack.num_data_bytes)), HasSubstr(attack.error))
        << attack.name;
  }
}

TEST(SafetensorsTest, RefusesAHeaderLongerThanTheFileOrTheLimit) {
  for (const uint64_t length : {uint64_t{33}, uint64_t{100'000'001}, UINT64_MAX}) {
    testing::ByteWriter file;
    file.Put(length).PutBytes(std::vector<uint8_t>(32, '{'));
    EXPECT_THAT(ErrorOf(file.bytes()), HasSubstr("offset 0: a header of")) << length;
  }
}

TEST(SafetensorsIndexTest, ReadsTheWeightMap) {
  const auto map = ParseSafetensorsIndex(
      R"({"metadata":{"total_size":8},"weight_map":{"a":"x-00001.safetensors","b":"y.st"}})", "i");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->at("a"), "x-00001.safetensors");
  EXPECT_EQ(map->size(), 2u);
}

TEST(SafetensorsIndexTest, RefusesNamesThatLeaveTheFolder) {
  for (const char* name :
       {"../x", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b", ".hidden", "a\\u0000b", "a\\nb"}) {
    const std::string text = std::string(R"({"weight_map":{"t":")") + name + "\"}}";
    EXPECT_THAT(StatusMessage(ParseSafetensorsIndex(text, "i").status()),
                HasSubstr("wanted the plain name"))
        << name;
  }
  EXPECT_FALSE(ParseSafetensorsIndex(R"({"weight_map":{"t":3}})", "i").ok());
  EXPECT_FALSE(ParseSafetensorsIndex(R"({"weight_map":[]})", "i").ok());
  EXPECT_FALSE(ParseSafetensorsIndex("{}", "i").ok());
}

}  // namespace
}  // namespace headroom::models
