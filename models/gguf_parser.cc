#include "models/gguf_parser.h"

#include <algorithm>
#include <numeric>

#include "models/file_error.h"

namespace headroom::models {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxEntries = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 18;
constexpr uint64_t kMaxKeyBytes = 65535;  // the specification's limit
constexpr uint64_t kMaxNameBytes = 1024;
constexpr uint64_t kMaxAlignment = 1 << 16;
constexpr uint32_t kMaxDims = 4;
// The least a key-value pair (length, one byte of key, type, one byte) and a tensor (length, one
// byte of name, count of dimensions, one dimension, type, offset) can take.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

uint64_t NumberBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool IsKnownType(uint32_t type) { return type <= static_cast<uint32_t>(GgufType::kFloat64); }

std::string_view AsText(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool AllBools(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte <= 1; });
}

// The tensor types of the format that Headroom does not read, for a helpful error.
const char* OtherTensorTypeName(uint32_t type) {
  switch (type) {
    case 9:
      return "Q8_1";
    case 10:
      return "Q2_K";
    case 11:
      return "Q3_K";
    case 12:
      return "Q4_K";
    case 13:
      return "Q5_K";
    case 14:
      return "Q6_K";
    case 15:
      return "Q8_K";
    case 16:
      return "IQ2_XXS";
    case 17:
      return "IQ2_XS";
    case 18:
      return "IQ3_XXS";
    case 19:
      return "IQ1_S";
    case 20:
      return "IQ4_NL";
    case 21:
      return "IQ3_S";
    case 22:
      return "IQ2_S";
    case 23:
      return "IQ4_XS";
    case 24:
      return "I8";
    case 25:
      return "I16";
    case 26:
      return "I32";
    case 27:
      return "I64";
    case 28:
      return "F64";
    case 29:
      return "IQ1_M";
    case 34:
      return "TQ1_0";
    case 35:
      return "TQ2_0";
    case 39:
      return "MXFP4";
    default:
      return "unknown";
  }
}

bool TensorDType(uint32_t type, DType& dtype) {
  switch (type) {
    case 0:
      dtype = DType::kF32;
      return true;
    case 1:
      dtype = DType::kF16;
      return true;
    case 2:
      dtype = DType::kQ4_0;
      return true;
    case 3:
      dtype = DType::kQ4_1;
      return true;
    case 6:
      dtype = DType::kQ5_0;
      return true;
    case 7:
      dtype = DType::kQ5_1;
      return true;
    case 8:
      dtype = DType::kQ8_0;
      return true;
    case 30:
      dtype = DType::kBF16;
      return true;
    default:
      return false;
  }
}

}  // namespace

GgufParser::GgufParser(std::span<const uint8_t> bytes, const std::string& path)
    : bytes_(bytes), reader_(bytes) {
  file_.path_ = path;
}

StatusOr<GgufFile> GgufParser::Parse() {
  HEADROOM_RETURN_IF_ERROR(ParseHeader());
  for (uint64_t i = 0; i < num_entries_; ++i) {
    HEADROOM_RETURN_IF_ERROR(ParseEntry());
  }
  std::vector<uint32_t>& by_key = file_.by_key_;
  by_key.resize(file_.entries_.size());
  std::iota(by_key.begin(), by_key.end(), 0u);
  std::sort(by_key.begin(), by_key.end(), [this](uint32_t a, uint32_t b) {
    return file_.entries_[a].key < file_.entries_[b].key;
  });
  HEADROOM_RETURN_IF_ERROR(ParseAlignment());
  for (uint64_t i = 0; i < num_tensors_; ++i) {
    HEADROOM_RETURN_IF_ERROR(ParseTensorInfo());
  }
  HEADROOM_RETURN_IF_ERROR(PlaceTensors());
  return std::move(file_);
}

Status GgufParser::Truncated(const char* what) const {
  return FileError(file_.path_, reader_.offset(), "the file ends inside {}: {} bytes left", what,
                   reader_.remaining());
}

Status GgufParser::ParseHeader() {
  uint32_t magic = 0;
  if (!reader_.Read(magic) || magic != kMagic) {
    return FileError(file_.path_, 0, "not a GGUF file: it does not begin with \"GGUF\"");
  }
  if (!reader_.Read(file_.version_)) {
    return Truncated("the version");
  }
  if (file_.version_ != 2 && file_.version_ != 3) {
    const bool swapped = (file_.version_ & 0xffff) == 0 && file_.version_ != 0;
    return FileError(file_.path_, 4, "GGUF version {}, wanted 2 or 3{}", file_.version_,
                     swapped ? " (the file looks big-endian)" : "");
  }
  if (!reader_.Read(num_tensors_) || !reader_.Read(num_entries_)) {
    return Truncated("the header");
  }
  if (num_entries_ > kMaxEntries || num_entries_ > reader_.remaining() / kMinEntryBytes) {
    return FileError(file_.path_, 16, "{} metadata entries, wanted at most {} in the {} bytes left",
                     num_entries_, std::min(kMaxEntries, reader_.remaining() / kMinEntryBytes),
                     reader_.remaining());
  }
  if (num_tensors_ > kMaxTensors || num_tensors_ > reader_.remaining() / kMinTensorBytes) {
    return FileError(file_.path_, 8, "{} tensors, wanted at most {} in the {} bytes left",
                     num_tensors_, std::min(kMaxTensors, reader_.remaining() / kMinTensorBytes),
                     reader_.remaining());
  }
  return OkStatus();
}

Status GgufParser::ParseString(const char* what, uint64_t max_bytes,
                               std::span<const uint8_t>& out) {
  const uint64_t offset = reader_.offset();
  uint64_t length = 0;
  if (!reader_.Read(length)) {
    return Truncated(what);
  }
  if (length > max_bytes || !reader_.Take(length, out)) {
    return FileError(file_.path_, offset, "{} of {} bytes, wanted at most {}", what, length,
                     std::min(max_bytes, reader_.remaining()));
  }
  return OkStatus();
}

Status GgufParser::ParseEntry() {
  const uint64_t offset = reader_.offset();
  std::span<const uint8_t> key;
  HEADROOM_RETURN_IF_ERROR(ParseString("a metadata key", kMaxKeyBytes, key));
  if (key.empty()) {
    return FileError(file_.path_, offset, "an empty metadata key");
  }
  GgufEntry entry;
  entry.key = AsText(key);
  if (!keys_.insert(AsText(key)).second) {
    return FileError(file_.path_, offset, "metadata key \"{}\" appears twice",
                     Printable(entry.key));
  }
  uint32_t type = 0;
  const uint64_t type_offset = reader_.offset();
  if (!reader_.Read(type)) {
    return Truncated("a metadata type");
  }
  if (!IsKnownType(type)) {
    return FileError(file_.path_, type_offset, "metadata \"{}\" has type {}, wanted 0..12",
                     Printable(entry.key), type);
  }
  entry.type = static_cast<GgufType>(type);
  HEADROOM_RETURN_IF_ERROR(ParseValue(entry));
  file_.entries_.push_back(std::move(entry));
  return OkStatus();
}

Status GgufParser::ParseValue(GgufEntry& entry) {
  if (entry.type == GgufType::kArray) {
    return ParseArray(entry);
  }
  if (entry.type == GgufType::kString) {
    HEADROOM_RETURN_IF_ERROR(ParseString("a metadata string", UINT64_MAX, entry.bytes));
    entry.file_offset = reader_.offset() - entry.bytes.size();
    return OkStatus();
  }
  entry.file_offset = reader_.offset();
  if (!reader_.Take(NumberBytes(entry.type), entry.bytes)) {
    return Truncated("a metadata value");
  }
  if (entry.type == GgufType::kBool && !AllBools(entry.bytes)) {
    return FileError(file_.path_, entry.file_offset,
                     "metadata \"{}\" is the bool {}, wanted 0 or 1", Printable(entry.key),
                     entry.bytes[0]);
  }
  return OkStatus();
}

Status GgufParser::ParseArray(GgufEntry& entry) {
  const uint64_t offset = reader_.offset();
  uint32_t type = 0;
  if (!reader_.Read(type) || !reader_.Read(entry.count)) {
    return Truncated("an array's head");
  }
  if (!IsKnownType(type) || type == static_cast<uint32_t>(GgufType::kArray)) {
    return FileError(file_.path_, offset, "metadata \"{}\" is an array of {}", Printable(entry.key),
                     IsKnownType(type) ? "arrays, which no model file needs"
                                       : fmt::format("type {}, wanted 0..12", type));
  }
  entry.element_type = static_cast<GgufType>(type);
  entry.file_offset = reader_.offset();
  const bool strings = entry.element_type == GgufType::kString;
  const uint64_t element_bytes = strings ? 8 : NumberBytes(entry.element_type);
  if (entry.count > reader_.remaining() / element_bytes) {
    return FileError(
        file_.path_, offset + 4,
        "metadata \"{}\" is an array of {} elements, wanted at most {} in the {} bytes "
        "left",
        Printable(entry.key), entry.count, reader_.remaining() / element_bytes,
        reader_.remaining());
  }
  if (!strings) {
    reader_.Take(entry.count * element_bytes, entry.bytes);
    if (entry.element_type == GgufType::kBool && !AllBools(entry.bytes)) {
      return FileError(file_.path_, entry.file_offset,
                       "metadata \"{}\" is an array of bools with a value other than 0 and 1",
                       Printable(entry.key));
    }
    return OkStatus();
  }
  for (uint64_t i = 0; i < entry.count; ++i) {
    std::span<const uint8_t> text;
    HEADROOM_RETURN_IF_ERROR(ParseString("a string of an array", UINT64_MAX, text));
  }
  entry.bytes = bytes_.subspan(entry.file_offset, reader_.offset() - entry.file_offset);
  return OkStatus();
}

Status GgufParser::ParseAlignment() {
  const GgufEntry* entry = file_.Find("general.alignment");
  if (entry == nullptr) {
    return OkStatus();
  }
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> value, file_.GetInt("general.alignment"));
  const auto alignment = static_cast<uint64_t>(*value);
  if (*value < 8 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
    return FileError(file_.path_, entry->file_offset,
                     "general.alignment is {}, wanted a power of two in 8..{}", *value,
                     kMaxAlignment);
  }
  file_.alignment_ = alignment;
  return OkStatus();
}

Status GgufParser::ParseShape(NamedTensor& tensor) {
  const uint64_t offset = reader_.offset();
  uint32_t num_dims = 0;
  if (!reader_.Read(num_dims)) {
    return Truncated("a tensor's count of dimensions");
  }
  if (num_dims < 1 || num_dims > kMaxDims) {
    return FileError(file_.path_, offset, "tensor \"{}\" has {} dimensions, wanted 1..4",
                     Printable(tensor.name), num_dims);
  }
  tensor.shape.resize(num_dims);
  for (uint32_t i = 0; i < num_dims; ++i) {
    const uint64_t dim_offset = reader_.offset();
    uint64_t dim = 0;
    if (!reader_.Read(dim)) {
      return Truncated("a tensor's dimensions");
    }
    if (dim == 0 || dim > static_cast<uint64_t>(INT64_MAX)) {
      return FileError(file_.path_, dim_offset, "dimension {} of tensor \"{}\" is {}", i,
                       Printable(tensor.name), dim);
    }
    tensor.shape[num_dims - 1 - i] = static_cast<int64_t>(dim);  // the file lists innermost first
  }
  return OkStatus();
}

Status GgufParser::ParseTensorInfo() {
  const uint64_t offset = reader_.offset();
  std::span<const uint8_t> name;
  HEADROOM_RETURN_IF_ERROR(ParseString("a tensor name", kMaxNameBytes, name));
  if (name.empty()) {
    return FileError(file_.path_, offset, "an empty tensor name");
  }
  NamedTensor tensor;
  tensor.name = AsText(name);
  if (!names_.insert(AsText(name)).second) {
    return FileError(file_.path_, offset, "tensor \"{}\" appears twice", Printable(tensor.name));
  }
  HEADROOM_RETURN_IF_ERROR(ParseShape(tensor));
  const uint64_t type_offset = reader_.offset();
  uint32_t type = 0;
  if (!reader_.Read(type) || !reader_.Read(tensor.file_offset)) {
    return Truncated("a tensor's type and offset");
  }
  if (!TensorDType(type, tensor.view.dtype)) {
    return FileError(file_.path_, type_offset,
                     "tensor \"{}\" has type {} ({}), wanted F32, F16, BF16, Q8_0, Q4_0, Q4_1, "
                     "Q5_0 or Q5_1",
                     Printable(tensor.name), type, OtherTensorTypeName(type));
  }
  if (!SetViewShape(tensor)) {
    const DTypeInfo info = GetDTypeInfo(tensor.view.dtype);
    return FileError(
        file_.path_, offset,
        "tensor \"{}\" has shape {}, too large or not a multiple of the {} elements of "
        "a {} block",
        Printable(tensor.name), ShapeText(tensor.shape), info.block_size, info.name);
  }
  if (tensor.file_offset % file_.alignment_ != 0) {
    return FileError(file_.path_, type_offset + 4,
                     "tensor \"{}\" begins at {} of the data, wanted a multiple of {}",
                     Printable(tensor.name), tensor.file_offset, file_.alignment_);
  }
  file_.tensors_.push_back(std::move(tensor));
  return OkStatus();
}

// Turns offsets within the data section into places in the file, and checks that the tensors
// follow one another with nothing but alignment between them.
Status GgufParser::PlaceTensors() {
  std::vector<NamedTensor>& tensors = file_.tensors_;
  if (tensors.empty()) {
    return OkStatus();  // a vocabulary alone
  }
  const uint64_t mask = file_.alignment_ - 1;
  const uint64_t data_begin = (reader_.offset() + mask) & ~mask;
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return tensors[a].file_offset < tensors[b].file_offset;
  });
  uint64_t expected = 0;
  for (const uint32_t index : order) {
    NamedTensor& tensor = tensors[index];
    if (tensor.file_offset != expected) {
      return FileError(file_.path_, data_begin,
                       "tensor \"{}\" begins at {} of the data, wanted {}: tensors {}",
                       Printable(tensor.name), tensor.file_offset, expected,
                       tensor.file_offset < expected ? "overlap" : "leave a gap");
    }
    const auto size = static_cast<uint64_t>(tensor.view.num_bytes());
    const uint64_t available = bytes_.size() > data_begin ? bytes_.size() - data_begin : 0;
    if (expected > available || size > available - expected) {
      return FileError(file_.path_, data_begin,
                       "tensor \"{}\" needs {} bytes from {} of the data on, which holds {} bytes",
                       Printable(tensor.name), size, expected, available);
    }
    tensor.file_offset = data_begin + expected;
    tensor.view.data = bytes_.data() + tensor.file_offset;
    expected = (expected + size + mask) & ~mask;
  }
  return OkStatus();
}

}  // namespace headroom::models
