// Small model files made in memory, valid or broken on purpose.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::testing {

// Appends little-endian numbers and GGUF strings.
class ByteWriter {
 public:
  template <typename T>
  ByteWriter& Put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  ByteWriter& PutBytes(std::span<const uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  ByteWriter& PutString(std::string_view text) {
    Put<uint64_t>(text.size());
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return *this;
  }
  ByteWriter& AlignTo(size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// GGUF's numbers of value types and tensor types.
enum GgufValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
inline constexpr uint32_t kTensorF32 = 0;
inline constexpr uint32_t kTensorF16 = 1;
inline constexpr uint32_t kTensorQ4_0 = 2;

struct GgufTensorSpec {
  std::string name;
  std::vector<uint64_t> dims;  // innermost first, as the file has them
  uint32_t type = kTensorF32;
  uint64_t offset = 0;  // in the data section
};

// A GGUF file in parts that a test may change before Build.
class GgufWriter {
 public:
  uint32_t magic = 0x46554747;
  uint32_t version = 3;
  int64_t extra_entries = 0;  // added to the count that the header claims
  int64_t extra_tensors = 0;
  uint64_t alignment = 32;
  std::vector<GgufTensorSpec> tensors;
  std::vector<uint8_t> data;

  template <typename T>
  GgufWriter& Number(std::string_view key, uint32_t type, T value) {
    entries_.PutString(key).Put(type).Put(value);
    ++num_entries_;
    return *this;
  }
  GgufWriter& String(std::string_view key, std::string_view value) {
    entries_.PutString(key).Put<uint32_t>(kString).PutString(value);
    ++num_entries_;
    return *this;
  }
  GgufWriter& Strings(std::string_view key, const std::vector<std::string>& values) {
    entries_.PutString(key).Put<uint32_t>(kArray).Put<uint32_t>(kString);
    entries_.Put<uint64_t>(values.size());
    for (const std::string& value : values) {
      entries_.PutString(value);
    }
    ++num_entries_;
    return *this;
  }
  template <typename T>
  GgufWriter& Numbers(std::string_view key, uint32_t type, const std::vector<T>& values) {
    entries_.PutString(key).Put<uint32_t>(kArray).Put(type).template Put<uint64_t>(values.size());
    for (const T& value : values) {
      entries_.Put(value);
    }
    ++num_entries_;
    return *this;
  }
  // An entry whose value is these bytes, whatever they are.
  GgufWriter& Raw(std::string_view key, uint32_t type, std::span<const uint8_t> value) {
    entries_.PutString(key).Put(type).PutBytes(value);
    ++num_entries_;
    return *this;
  }
  // Appends a tensor of f32 and its data, after those before it.
  GgufWriter& F32Tensor(std::string_view name, std::vector<uint64_t> dims) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) {
      count *= dim;
    }
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    tensors.push_back({std::string(name), std::move(dims), kTensorF32, data.size()});
    for (uint64_t i = 0; i < count; ++i) {
      const float value = 0.01f * static_cast<float>((i * 7 + tensors.size()) % 23) - 0.1f;
      const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
      data.insert(data.end(), bytes, bytes + sizeof(value));
    }
    return *this;
  }
  std::vector<uint8_t> Build() const {
    ByteWriter file;
    file.Put(magic).Put(version);
    file.Put<uint64_t>(static_cast<uint64_t>(static_cast<int64_t>(tensors.size()) + extra_tensors));
    file.Put<uint64_t>(static_cast<uint64_t>(num_entries_ + extra_entries));
    file.PutBytes(entries_.bytes());
    for (const GgufTensorSpec& tensor : tensors) {
      file.PutString(tensor.name).Put(static_cast<uint32_t>(tensor.dims.size()));
      for (const uint64_t dim : tensor.dims) {
        file.Put(dim);
      }
      file.Put(tensor.type).Put(tensor.offset);
    }
    if (!data.empty()) {
      file.AlignTo(alignment).PutBytes(data);
    }
    return file.bytes();
  }

 private:
  ByteWriter entries_;
  int64_t num_entries_ = 0;
};

// A llama of one layer (hidden 8, 2 heads, 1 KV head, head_dim 4, intermediate 12, 5 tokens).
inline GgufWriter TinyLlamaGguf() {
  GgufWriter file;
  file.String("general.architecture", "llama").String("general.name", "tiny llama");
  file.Number<uint32_t>("llama.embedding_length", kU32, 8);
  file.Number<uint32_t>("llama.feed_forward_length", kU32, 12);
  file.Number<uint32_t>("llama.block_count", kU32, 1);
  file.Number<uint32_t>("llama.attention.head_count", kU32, 2);
  file.Number<uint32_t>("llama.attention.head_count_kv", kU32, 1);
  file.Number<uint32_t>("llama.context_length", kU32, 64);
  file.Number<float>("llama.attention.layer_norm_rms_epsilon", kF32, 1e-6f);
  file.Number<float>("llama.rope.freq_base", kF32, 5000.0f);
  file.F32Tensor("token_embd.weight", {8, 5}).F32Tensor("output_norm.weight", {8});
  file.F32Tensor("blk.0.attn_norm.weight", {8}).F32Tensor("blk.0.attn_q.weight", {8, 8});
  file.F32Tensor("blk.0.attn_k.weight", {8, 4}).F32Tensor("blk.0.attn_v.weight", {8, 4});
  file.F32Tensor("blk.0.attn_output.weight", {8, 8}).F32Tensor("blk.0.ffn_norm.weight", {8});
  file.F32Tensor("blk.0.ffn_gate.weight", {8, 12}).F32Tensor("blk.0.ffn_up.weight", {8, 12});
  file.F32Tensor("blk.0.ffn_down.weight", {12, 8});
  return file;
}

// A safetensors file of this header and data.
inline std::vector<uint8_t> Safetensors(std::string_view header, size_t num_data_bytes) {
  ByteWriter file;
  file.Put<uint64_t>(header.size());
  file.PutBytes({reinterpret_cast<const uint8_t*>(header.data()), header.size()});
  for (size_t i = 0; i < num_data_bytes; ++i) {
    file.Put(static_cast<uint8_t>(i * 37 + 11));
  }
  return file.bytes();
}

// A folder of its own under the test's temporary folder, removed at the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("headroom_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string Write(const std::string& name, std::span<const uint8_t> bytes) const {
    const std::string file = (path_ / name).string();
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return file;
  }
  std::string Write(const std::string& name, std::string_view text) const {
    return Write(name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }

 private:
  std::filesystem::path path_;
};

}  // namespace headroom::testing
