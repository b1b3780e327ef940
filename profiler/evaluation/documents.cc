#include "profiler/evaluation/documents.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

namespace headroom::profiler {
namespace {

constexpr uintmax_t kMaxInputBytes = uintmax_t{1} << 30;

StatusOr<std::vector<Document>> CutIds(const std::vector<int32_t>& ids, const std::string& source,
                                       const DocumentCut& cut, std::optional<int32_t> bos) {
  const size_t block = static_cast<size_t>(cut.num_tokens) - (bos.has_value() ? 1 : 0);
  const size_t num_blocks = block == 0 ? 0 : ids.size() / block;
  if (num_blocks == 0) {
    return InvalidArgument("{}: the file has {} tokens, wanted at least one document of {}", source,
                           ids.size(), block);
  }
  const size_t count = std::min(num_blocks, static_cast<size_t>(cut.max_documents));
  std::vector<Document> documents(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t index = i * num_blocks / count;
    Document& document = documents[i];
    document.id = fmt::format("{}#{}-{}", source, cut.num_tokens, index);
    document.source = source;
    if (bos.has_value()) {
      document.ids.push_back(*bos);
    }
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(index * block);
    document.ids.insert(document.ids.end(), begin, begin + static_cast<std::ptrdiff_t>(block));
  }
  return documents;
}

}  // namespace

StatusOr<std::vector<Document>> CutText(std::string_view text, const std::string& source,
                                        const models::Tokenizer& tokenizer,
                                        const DocumentCut& cut) {
  const std::vector<int32_t> ids =
      tokenizer.Encode(text, /*add_bos=*/false, /*parse_special=*/false);
  const bool add_bos = tokenizer.add_bos() && tokenizer.bos_id() >= 0;
  return CutIds(ids, source, cut,
                add_bos ? std::optional<int32_t>(tokenizer.bos_id()) : std::nullopt);
}

StatusOr<std::vector<Document>> CutBytes(std::string_view text, const std::string& source,
                                         const DocumentCut& cut) {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128) {
      ids.push_back(byte);
    }
  }
  return CutIds(ids, source, cut, std::nullopt);
}

std::string FileName(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

StatusOr<std::string> ReadInput(const std::string& path, const std::string& flag) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return NotFound("{}: cannot read {}: {}", flag, path, error.message());
  }
  if (size > kMaxInputBytes) {
    return InvalidArgument("{}: {} has {} bytes, wanted at most {}", flag, path, size,
                           kMaxInputBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    return NotFound("{}: cannot read {}", flag, path);
  }
  return text;
}

}  // namespace headroom::profiler
