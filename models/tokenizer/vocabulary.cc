#include "models/tokenizer/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

namespace headroom::models {
namespace {

bool IsPrintableLatin1(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

std::array<char32_t, 256> MakeByteLevelLetters() {
  std::array<char32_t, 256> letters{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    letters[byte] = IsPrintableLatin1(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return letters;
}

// The bytes that a byte-level piece spells; a character outside the alphabet stands for itself.
std::string ByteLevelBytes(std::string_view piece) {
  static const std::unordered_map<char32_t, char> kBytes = [] {
    std::unordered_map<char32_t, char> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      bytes[ByteLevelLetter(static_cast<uint8_t>(byte))] = static_cast<char>(byte);
    }
    return bytes;
  }();
  std::string result;
  for (size_t position = 0; position < piece.size();) {
    const Utf8Char c = DecodeUtf8(piece, position);
    const auto byte = kBytes.find(c.code_point);
    if (c.result == Utf8Result::kCharacter && byte != kBytes.end()) {
      result.push_back(byte->second);
    } else {
      result.append(piece.substr(position, c.num_bytes));
    }
    position += c.num_bytes;
  }
  return result;
}

std::string WithSpaces(std::string_view piece) {
  std::string result;
  for (size_t position = 0; position < piece.size();) {
    if (piece.substr(position, kVisibleSpace.size()) == kVisibleSpace) {
      result.push_back(' ');
      position += kVisibleSpace.size();
    } else {
      result.push_back(piece[position++]);
    }
  }
  return result;
}

// <0xHH>, exactly.
std::optional<uint8_t> ParseBytePiece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') {
    return std::nullopt;
  }
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    int digit = -1;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    }
    if (digit < 0) {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<uint8_t>(value);
}

// Letters, digits, marks and white space alone: see Vocabulary::Create.
bool IsWordLike(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const Utf8Char c = DecodeUtf8(text, position);
    const CharClass char_class = ClassOf(c.code_point);
    if (char_class != CharClass::kLetter && char_class != CharClass::kNumber &&
        char_class != CharClass::kMark && char_class != CharClass::kSpace) {
      return false;
    }
    position += c.num_bytes;
  }
  return true;
}

int32_t Lookup(const std::unordered_map<std::string_view, int32_t>& map, std::string_view piece) {
  const auto found = map.find(piece);
  return found == map.end() ? -1 : found->second;
}

Status CheckId(const char* field, int32_t id, size_t vocab_size) {
  if (id < -1 || (id >= 0 && static_cast<size_t>(id) >= vocab_size)) {
    return InvalidArgument("tokenizer: {} is {}, wanted -1 (none) or an id below {}", field, id,
                           vocab_size);
  }
  return OkStatus();
}

Status CheckSizes(const TokenizerData& data) {
  const size_t size = data.tokens.size();
  if (size == 0 || size > kMaxVocabSize) {
    return InvalidArgument("tokenizer: the vocabulary has {} pieces, wanted 1 to {}", size,
                           kMaxVocabSize);
  }
  if (!data.scores.empty() && data.scores.size() != size) {
    return InvalidArgument("tokenizer: {} scores for {} pieces", data.scores.size(), size);
  }
  if (!data.token_types.empty() && data.token_types.size() != size) {
    return InvalidArgument("tokenizer: {} token types for {} pieces", data.token_types.size(),
                           size);
  }
  for (size_t i = 0; i < size; ++i) {
    if (data.tokens[i].size() > kMaxPieceBytes) {
      return InvalidArgument("tokenizer: piece {} has {} bytes, wanted at most {}", i,
                             data.tokens[i].size(), kMaxPieceBytes);
    }
  }
  for (size_t i = 0; i < data.scores.size(); ++i) {
    if (std::isnan(data.scores[i])) {
      return InvalidArgument("tokenizer: the score of piece {} is not a number", i);
    }
  }
  for (size_t i = 0; i < data.token_types.size(); ++i) {
    if (data.token_types[i] > TokenType::kByte) {
      return InvalidArgument("tokenizer: piece {} has the unknown type {}", i,
                             static_cast<int>(data.token_types[i]));
    }
  }
  return OkStatus();
}

Status CheckIds(const TokenizerData& data) {
  const size_t size = data.tokens.size();
  HEADROOM_RETURN_IF_ERROR(CheckId("the BOS id", data.bos_id, size));
  HEADROOM_RETURN_IF_ERROR(CheckId("the EOS id", data.eos_id, size));
  HEADROOM_RETURN_IF_ERROR(CheckId("the unknown-token id", data.unk_id, size));
  if (data.add_bos && data.bos_id < 0) {
    return InvalidArgument("tokenizer: a BOS is to be added, but no BOS id is given");
  }
  if (data.add_eos && data.eos_id < 0) {
    return InvalidArgument("tokenizer: an EOS is to be added, but no EOS id is given");
  }
  return OkStatus();
}

}  // namespace

char32_t ByteLevelLetter(uint8_t byte) {
  static const std::array<char32_t, 256> kLetters = MakeByteLevelLetters();
  return kLetters[byte];
}

StatusOr<Vocabulary> Vocabulary::Create(TokenizerData data, PieceSpelling spelling) {
  HEADROOM_RETURN_IF_ERROR(CheckSizes(data));
  HEADROOM_RETURN_IF_ERROR(CheckIds(data));
  Vocabulary vocabulary(std::move(data), spelling);
  vocabulary.IndexPieces();
  HEADROOM_RETURN_IF_ERROR(vocabulary.IndexByteTokens());
  return vocabulary;
}

Vocabulary::Vocabulary(TokenizerData data, PieceSpelling spelling)
    : data_(std::move(data)), spelling_(spelling) {
  data_.token_types.resize(data_.tokens.size(), TokenType::kNormal);
  for (const int32_t id : {data_.bos_id, data_.eos_id}) {
    if (id >= 0 && data_.token_types[id] == TokenType::kNormal) {
      data_.token_types[id] = TokenType::kControl;
    }
  }
  byte_tokens_.fill(-1);
}

void Vocabulary::SetBytes(int32_t id) {
  const std::string& piece = data_.tokens[id];
  switch (data_.token_types[id]) {
    case TokenType::kControl:
    case TokenType::kUnknown:
      return;
    case TokenType::kUserDefined:
      bytes_[id] = spelling_ == PieceSpelling::kSentencePiece ? WithSpaces(piece) : piece;
      return;
    case TokenType::kByte:
      return;  // IndexByteTokens
    case TokenType::kNormal:
    case TokenType::kUnused:
      bytes_[id] =
          spelling_ == PieceSpelling::kSentencePiece ? WithSpaces(piece) : ByteLevelBytes(piece);
      return;
  }
}

void Vocabulary::IndexPieces() {
  bytes_.resize(data_.tokens.size());
  normal_.reserve(data_.tokens.size());
  for (int32_t id = 0; id < size(); ++id) {
    SetBytes(id);
    const std::string& piece = data_.tokens[id];
    if (piece.empty()) {
      continue;  // nothing can become it
    }
    const TokenType type = data_.token_types[id];
    if (type == TokenType::kNormal) {
      normal_.try_emplace(piece, id);
      max_piece_bytes_ = std::max(max_piece_bytes_, piece.size());
    } else if (type == TokenType::kControl) {
      special_.try_emplace(piece, id);
      special_matcher_.Add(piece, id, false);
    } else if (type == TokenType::kUserDefined) {
      special_.try_emplace(piece, id);
      special_matcher_.Add(bytes_[id], id, IsAllowedInMessages(id));
    } else {
      other_.try_emplace(piece, id);
    }
  }
}

Status Vocabulary::IndexByteTokens() {
  for (int32_t id = 0; id < size(); ++id) {
    if (data_.token_types[id] != TokenType::kByte) {
      continue;
    }
    const std::optional<uint8_t> byte = ParseBytePiece(data_.tokens[id]);
    if (!byte.has_value()) {
      return InvalidArgument("tokenizer: byte piece {} is '{}', wanted <0x00> to <0xFF>", id,
                             data_.tokens[id]);
    }
    bytes_[id] = std::string(1, static_cast<char>(*byte));
    if (byte_tokens_[*byte] < 0) {
      byte_tokens_[*byte] = id;
    }
  }
  if (spelling_ == PieceSpelling::kByteLevel) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string letter;
      AppendUtf8(ByteLevelLetter(static_cast<uint8_t>(byte)), &letter);
      if (const int32_t id = FindNormal(letter); id >= 0) {
        byte_tokens_[byte] = id;
      }
    }
  }
  return OkStatus();
}

std::string_view Vocabulary::TokenBytes(int32_t id) const {
  return IsValid(id) ? std::string_view(bytes_[id]) : std::string_view();
}

std::string_view Vocabulary::TokenPiece(int32_t id) const {
  return IsValid(id) ? std::string_view(data_.tokens[id]) : std::string_view();
}

TokenType Vocabulary::Type(int32_t id) const {
  return IsValid(id) ? data_.token_types[id] : TokenType::kUnknown;
}

int32_t Vocabulary::FindSpecial(std::string_view piece) const { return Lookup(special_, piece); }

int32_t Vocabulary::FindNormal(std::string_view piece) const { return Lookup(normal_, piece); }

int32_t Vocabulary::FindAny(std::string_view piece) const {
  for (const auto* map : {&normal_, &special_, &other_}) {
    if (const int32_t id = Lookup(*map, piece); id >= 0) {
      return id;
    }
  }
  return -1;
}

bool Vocabulary::IsAllowedInMessages(int32_t id) const {
  switch (data_.token_types[id]) {
    case TokenType::kNormal:
    case TokenType::kByte:
      return true;
    case TokenType::kUserDefined:
      return id != data_.bos_id && id != data_.eos_id && IsWordLike(bytes_[id]);
    default:
      return false;
  }
}

}  // namespace headroom::models
