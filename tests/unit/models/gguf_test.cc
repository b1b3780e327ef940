#include "models/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/philox.h"
#include "tests/support/model_file_writers.h"

namespace headroom::models {
namespace {

using testing::ByteWriter;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::TinyLlamaGguf;

StatusOr<GgufFile> Parse(const std::vector<uint8_t>& bytes) {
  return GgufFile::Parse(bytes, "model.gguf");
}

std::string ErrorOf(const std::vector<uint8_t>& bytes) {
  const StatusOr<GgufFile> file = Parse(bytes);
  return file.ok() ? "no error" : StatusMessage(file.status());
}

// Every value type once.
GgufWriter EveryType() {
  GgufWriter file;
  file.Number<uint8_t>("u8", testing::kU8, 200).Number<int8_t>("i8", testing::kI8, -100);
  file.Number<uint16_t>("u16", testing::kU16, 60000);
  file.Number<int16_t>("i16", testing::kI16, -30000);
  file.Number<uint32_t>("u32", testing::kU32, 4000000000u);
  file.Number<int32_t>("i32", testing::kI32, -2000000000);
  file.Number<float>("f32", testing::kF32, 1.5f).Number<uint8_t>("bool", testing::kBool, 1);
  file.String("string", "text");
  file.Number<uint64_t>("u64", testing::kU64, uint64_t{1} << 62);
  file.Number<int64_t>("i64", testing::kI64, -(int64_t{1} << 62));
  file.Number<double>("f64", testing::kF64, -2.25);
  file.Strings("strings", {"a", "", "ccc"});
  file.Numbers<float>("floats", testing::kF32, {0.5f, -1.0f});
  file.Numbers<int32_t>("ints", testing::kI32, {3, -4});
  file.Numbers<uint8_t>("bools", testing::kBool, {0, 1});
  return file;
}

TEST(GgufTest, ReadsEveryMetadataType) {
  const std::vector<uint8_t> bytes = EveryType().Build();
  const StatusOr<GgufFile> file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->entries().size(), 16u);
  const std::pair<const char*, int64_t> ints[] = {{"u8", 200},
                                                  {"i8", -100},
                                                  {"u16", 60000},
                                                  {"i16", -30000},
                                                  {"u32", 4000000000},
                                                  {"i32", -2000000000},
                                                  {"u64", int64_t{1} << 62},
                                                  {"i64", -(int64_t{1} << 62)}};
  for (const auto& [key, value] : ints) {
    EXPECT_EQ(file->GetInt(key).value(), value) << key;
  }
  EXPECT_EQ(file->GetFloat("f32").value(), 1.5);
  EXPECT_EQ(file->GetFloat("f64").value(), -2.25);
  EXPECT_EQ(file->GetBool("bool").value(), true);
  EXPECT_EQ(file->GetString("string").value(), "text");
  EXPECT_EQ(file->GetStrings("strings").value(), (std::vector<std::string>{"a", "", "ccc"}));
  EXPECT_EQ(file->GetFloats("floats").value(), (std::vector<float>{0.5f, -1.0f}));
  EXPECT_EQ(file->GetInts("ints").value(), (std::vector<int64_t>{3, -4}));
}

TEST(GgufTest, SaysWhichTypeItFoundAndWhichItWanted) {
  const std::vector<uint8_t> bytes = EveryType().Build();
  const StatusOr<GgufFile> file = Parse(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(StatusMessage(file->GetInt("string").status()),
              HasSubstr("metadata \"string\" is \"text\", wanted an integer"));
  EXPECT_THAT(StatusMessage(file->GetString("u8").status()), HasSubstr("wanted a string"));
  EXPECT_THAT(StatusMessage(file->GetFloats("ints").status()), HasSubstr("[2 x i32]"));
  EXPECT_FALSE(file->GetBool("u8").ok());
  EXPECT_FALSE(file->GetStrings("floats").ok());
  EXPECT_FALSE(file->GetInts("u8").ok());
  EXPECT_FALSE(file->GetFloat("u8").ok());
  EXPECT_EQ(file->GetInt("absent").value(), std::nullopt);
}

TEST(GgufTest, ReadsTensorsOfVersions2And3) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = TinyLlamaGguf();
    writer.version = version;
    const std::vector<uint8_t> bytes = writer.Build();
    const StatusOr<GgufFile> file = Parse(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->version(), version);
    ASSERT_EQ(file->tensors().size(), writer.tensors.size());
    const NamedTensor& tensor = file->tensors()[0];
    EXPECT_EQ(tensor.name, "token_embd.weight");
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{5, 8}));
    EXPECT_EQ(tensor.view.rows, 5);
    EXPECT_EQ(tensor.view.cols, 8);
    EXPECT_EQ(tensor.view.data, bytes.data() + tensor.file_offset);
    EXPECT_EQ(0, std::memcmp(tensor.view.data, writer.data.data(), 5 * 8 * sizeof(float)));
  }
}

TEST(GgufTest, ObeysTheFilesAlignment) {
  GgufWriter writer;
  writer.alignment = 256;
  writer.Number<uint32_t>("general.alignment", testing::kU32, 256);
  writer.F32Tensor("a", {3}).F32Tensor("b", {4});
  const std::vector<uint8_t> bytes = writer.Build();
  const StatusOr<GgufFile> file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors()[0].file_offset % 256, 0u);
  EXPECT_EQ(file->tensors()[1].file_offset, file->tensors()[0].file_offset + 256);
}

TEST(GgufTest, RefusesAFileCutAnywhere) {
  const std::vector<uint8_t> bytes = TinyLlamaGguf().Build();
  ASSERT_TRUE(Parse(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A block of exactly this size, so that a sanitizer sees one byte too many.
    const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    const StatusOr<GgufFile> file = Parse(cut);
    ASSERT_FALSE(file.ok()) << "cut to " << size << " of " << bytes.size();
    EXPECT_THAT(StatusMessage(file.status()), HasSubstr("model.gguf: offset "));
  }
}

TEST(GgufTest, SurvivesChangedBytes) {
  const std::vector<uint8_t> bytes = EveryType().F32Tensor("t", {4, 4}).Build();
  const Philox random(5);
  for (uint64_t round = 0; round < 20000; ++round) {
    std::vector<uint8_t> changed = bytes;
    const std::array<uint32_t, 4> words = random.Block(round);
    changed[words[0] % changed.size()] = static_cast<uint8_t>(words[1]);
    if (round % 2 == 0) {
      changed[words[2] % changed.size()] = static_cast<uint8_t>(words[3]);
    }
    const StatusOr<GgufFile> file = Parse(changed);
    if (file.ok()) {
      for (const GgufEntry& entry : file->entries()) {
        EXPECT_FALSE(GgufValueText(entry).empty());
      }
    }
  }
}

struct Attack {
  const char* name;
  std::function<std::vector<uint8_t>()> bytes;
  const char* error;
};

std::vector<uint8_t> WithTensors(std::vector<testing::GgufTensorSpec> tensors, size_t data_bytes) {
  GgufWriter writer;
  writer.tensors = std::move(tensors);
  writer.data.resize(data_bytes);
  return writer.Build();
}

std::vector<uint8_t> WithArray(uint32_t element_type, uint64_t count, size_t num_bytes) {
  ByteWriter value;
  value.Put(element_type).Put(count).PutBytes(std::vector<uint8_t>(num_bytes));
  return GgufWriter().Raw("array", testing::kArray, value.bytes()).Build();
}

std::vector<uint8_t> WithString(uint64_t length) {
  ByteWriter value;
  value.Put(length).PutBytes(std::vector<uint8_t>(16));
  return GgufWriter().Raw("string", testing::kString, value.bytes()).Build();
}

std::vector<uint8_t> WithHeader(const std::function<void(GgufWriter&)>& change) {
  GgufWriter writer = TinyLlamaGguf();
  change(writer);
  return writer.Build();
}

std::vector<uint8_t> WithAlignment(uint32_t alignment) {
  return GgufWriter().Number<uint32_t>("general.alignment", testing::kU32, alignment).Build();
}

const std::vector<Attack>& Attacks() {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  static const std::vector<Attack> attacks = {
      {"four bytes",
       [] {
         return std::vector<uint8_t>{'G', 'G', 'U', 'F'};
       },
       "the version"},
      {"other magic", [] { return WithHeader([](GgufWriter& w) { w.magic = 0x47475546; }); },
       "not a GGUF file"},
      {"version 1", [] { return WithHeader([](GgufWriter& w) { w.version = 1; }); },
       "GGUF version 1, wanted 2 or 3"},
      {"big-endian", [] { return WithHeader([](GgufWriter& w) { w.version = 0x03000000; }); },
       "looks big-endian"},
      {"huge count of entries",
       [] { return WithHeader([](GgufWriter& w) { w.extra_entries = INT64_MAX / 2; }); },
       "offset 16: "},
      {"huge count of tensors",
       [] { return WithHeader([](GgufWriter& w) { w.extra_tensors = INT64_MAX / 2; }); },
       "offset 8: "},
      {"one entry too many claimed",
       [] { return WithHeader([](GgufWriter& w) { w.extra_entries = 1; }); }, "offset "},
      {"huge string", [] { return WithString(UINT64_MAX); }, "a metadata string of"},
      {"string one too long", [] { return WithString(17); }, "a metadata string of 17 bytes"},
      {"huge array", [] { return WithArray(testing::kU64, kHuge, 64); }, "wanted at most 8"},
      {"array whose bytes overflow",
       [] { return WithArray(testing::kU64, UINT64_MAX / 8 + 2, 64); }, "wanted at most 8"},
      {"array of arrays", [] { return WithArray(testing::kArray, 1, 64); }, "array of arrays"},
      {"array of unknown type", [] { return WithArray(99, 1, 64); }, "type 99"},
      {"array of bad bools",
       [] {
         ByteWriter value;
         value.Put<uint32_t>(testing::kBool).Put<uint64_t>(2).Put<uint8_t>(0).Put<uint8_t>(2);
         return GgufWriter().Raw("b", testing::kArray, value.bytes()).Build();
       },
       "array of bools"},
      {"array of strings past the end", [] { return WithArray(testing::kString, 3, 24 - 1); },
       "wanted at most 2"},
      {"bool 2", [] { return GgufWriter().Number<uint8_t>("b", testing::kBool, 2).Build(); },
       "the bool 2"},
      {"unknown value type", [] { return GgufWriter().Number<uint32_t>("key", 13, 0).Build(); },
       "has type 13"},
      {"duplicate key",
       [] { return GgufWriter().String("key", "aaaa").String("key", "bbbb").Build(); },
       "\"key\" appears twice"},
      {"empty key", [] { return GgufWriter().String("", "some text").Build(); }, "empty metadata"},
      {"long key", [] { return GgufWriter().String(std::string(65536, 'k'), "").Build(); },
       "65536 bytes"},
      {"key with control bytes",
       [] { return GgufWriter().Number<uint8_t>("a\x1b[2Jb", testing::kBool, 7).Build(); },
       "\"a?[2Jb\""},
      {"alignment 0", [] { return WithAlignment(0); }, "general.alignment is 0"},
      {"alignment 24", [] { return WithAlignment(24); }, "power of two"},
      {"alignment 2^31", [] { return WithAlignment(1u << 31); }, "power of two"},
      {"alignment of another type",
       [] { return GgufWriter().String("general.alignment", "32").Build(); }, "wanted an integer"},
      {"no dimensions",
       [] {
         return WithTensors({{"t", {}, 0, 0}, {"u", {1}, 0, 0}}, 32);
       },
       "0 dimensions"},
      {"five dimensions",
       [] {
         return WithTensors({{"t", {1, 1, 1, 1, 1}, 0, 0}}, 32);
       },
       "5 dimensions"},
      {"dimension 0",
       [] {
         return WithTensors({{"t", {4, 0}, 0, 0}}, 32);
       },
       "dimension 1"},
      {"negative dimension",
       [] {
         return WithTensors({{"t", {UINT64_MAX}, 0, 0}}, 32);
       },
       "dimension 0"},
      {"dimensions that overflow",
       [] {
         return WithTensors({{"t", {4, kHuge, 4, 4}, 0, 0}}, 32);
       },
       "too large"},
      {"bytes that overflow",
       [] {
         return WithTensors({{"t", {kHuge}, 0, 0}}, 32);
       },
       "too large"},
      {"row that is no whole block",
       [] {
         return WithTensors({{"t", {48, 2}, testing::kTensorQ4_0, 0}}, 64);
       },
       "32 elements"},
      {"unread tensor type",
       [] {
         return WithTensors({{"t", {256}, 12, 0}}, 256);
       },
       "tensor \"t\" has type 12 (Q4_K), wanted F32"},
      {"unknown tensor type",
       [] {
         return WithTensors({{"t", {256}, 4096, 0}}, 256);
       },
       "4096"},
      {"removed tensor type",
       [] {
         return WithTensors({{"t", {256}, 4, 0}}, 256);
       },
       "type 4 "},
      {"duplicate tensor",
       [] {
         return WithTensors({{"t", {8}, 0, 0}, {"t", {8}, 0, 32}}, 64);
       },
       "\"t\" appears twice"},
      {"empty tensor name",
       [] {
         return WithTensors({{"", {8}, 0, 0}}, 64);
       },
       "empty tensor name"},
      {"long tensor name",
       [] {
         return WithTensors({{std::string(1025, 't'), {8}, 0, 0}}, 64);
       },
       "1025 bytes"},
      {"misaligned tensor",
       [] {
         return WithTensors({{"t", {7}, 0, 4}}, 64);
       },
       "multiple of 32"},
      {"overlap",
       [] {
         return WithTensors({{"t", {16}, 0, 0}, {"u", {8}, 0, 32}}, 96);
       },
       "tensors overlap"},
      {"same place",
       [] {
         return WithTensors({{"t", {8}, 0, 0}, {"u", {8}, 0, 0}}, 96);
       },
       "tensors overlap"},
      {"gap",
       [] {
         return WithTensors({{"t", {8}, 0, 0}, {"u", {8}, 0, 64}}, 96);
       },
       "leave a gap"},
      {"gap at the start",
       [] {
         return WithTensors({{"t", {8}, 0, 32}}, 96);
       },
       "leave a gap"},
      {"offset past the end",
       [] {
         return WithTensors({{"t", {8}, 0, kHuge}}, 32);
       },
       "gap"},
      {"size past the end",
       [] {
         return WithTensors({{"t", {9}, 0, 0}}, 32);
       },
       "needs 36 bytes"},
      {"no data at all",
       [] {
         return WithTensors({{"t", {8}, 0, 0}}, 0);
       },
       "which holds 0 bytes"},
  };
  return attacks;
}

TEST(GgufTest, RefusesEveryKnownAttackWithTheReason) {
  for (const Attack& attack : Attacks()) {
    const std::string error = ErrorOf(attack.bytes());
    EXPECT_THAT(error, HasSubstr("model.gguf: offset ")) << attack.name;
    EXPECT_THAT(error, HasSubstr(attack.error)) << attack.name;
  }
}

TEST(GgufTest, AcceptsTensorsInAnyOrder) {
  const std::vector<uint8_t> bytes = WithTensors({{"b", {8}, 0, 32}, {"a", {8}, 0, 0}}, 64);
  const StatusOr<GgufFile> file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors()[0].name, "b");
  EXPECT_EQ(file->tensors()[0].file_offset, file->tensors()[1].file_offset + 32);
}

}  // namespace
}  // namespace headroom::models
