// The pieces of a vocabulary, validated, with what each stands for in text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "models/tokenizer/special_matcher.h"
#include "models/tokenizer/tokenizer.h"

namespace headroom::models {

// No vocabulary in use comes near these; they bound the work that a hostile file can cause.
inline constexpr size_t kMaxVocabSize = size_t{1} << 24;
inline constexpr size_t kMaxPieceBytes = 4096;

// U+2581, SentencePiece's visible space.
inline constexpr std::string_view kVisibleSpace = "\xE2\x96\x81";

// How the pieces of a vocabulary spell bytes.
enum class PieceSpelling {
  kByteLevel,      // GPT-2's alphabet: one printable character for each byte
  kSentencePiece,  // UTF-8 with U+2581 for the space
};

class Vocabulary {
 public:
  // Checks everything of `data` but the merges, and takes it over.
  //
  // Two decisions about what files say. BOS and EOS are control tokens whatever type the file
  // gives them as long as it is normal, for text must not be able to end an answer. A user-defined
  // piece made of letters, digits, marks and white space alone (a run of spaces, a rare letter)
  // is a word that the model knows, and messages may spell it, as every tokenizer library has it;
  // one with punctuation or symbols in it ("</s>", "<tool_call>", "[INST]") is markup, and
  // like a control token never comes from a message.
  static StatusOr<Vocabulary> Create(TokenizerData data, PieceSpelling spelling);

  // The maps point into the pieces: a copy would point into its original.
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  int32_t size() const { return static_cast<int32_t>(data_.tokens.size()); }
  const TokenizerData& data() const { return data_; }
  bool IsValid(int32_t id) const { return id >= 0 && id < size(); }

  // As Tokenizer's functions of these names.
  std::string_view TokenBytes(int32_t id) const;
  std::string_view TokenPiece(int32_t id) const;
  TokenType Type(int32_t id) const;
  int32_t FindSpecial(std::string_view piece) const;

  // The id of a piece that ordinary text may become (normal type), or -1. Where a piece occurs
  // twice the lowest id wins.
  int32_t FindNormal(std::string_view piece) const;

  // The id of any piece: the normal one where there is one, else the lowest; or -1.
  int32_t FindAny(std::string_view piece) const;

  // True when message text may become this token.
  bool IsAllowedInMessages(int32_t id) const;

  // The token of one byte, or -1. kByteLevel: the normal piece of the byte's letter;
  // kSentencePiece: the byte piece <0xHH>.
  int32_t ByteToken(uint8_t byte) const { return byte_tokens_[byte]; }

  // What stands for bytes without a token: the unknown token, or -1 when there is none or it is a
  // control token, which no message may become.
  int32_t FallbackToken() const {
    return Type(data_.unk_id) == TokenType::kControl ? -1 : data_.unk_id;
  }

  const SpecialMatcher& special_matcher() const { return special_matcher_; }
  size_t max_piece_bytes() const { return max_piece_bytes_; }

 private:
  Vocabulary(TokenizerData data, PieceSpelling spelling);

  void SetBytes(int32_t id);
  void IndexPieces();
  Status IndexByteTokens();

  TokenizerData data_;
  PieceSpelling spelling_;
  std::vector<std::string> bytes_;  // [vocab] TokenBytes
  // Piece -> lowest id; views into data_.tokens.
  std::unordered_map<std::string_view, int32_t> normal_;
  std::unordered_map<std::string_view, int32_t> special_;  // control and user-defined
  std::unordered_map<std::string_view, int32_t> other_;    // unknown, unused, byte
  std::array<int32_t, 256> byte_tokens_ = {};
  SpecialMatcher special_matcher_;
  size_t max_piece_bytes_ = 0;
};

// The letter that GPT-2's byte-level alphabet gives a byte: itself where it is printable Latin-1,
// else the next code point from U+0100 on.
char32_t ByteLevelLetter(uint8_t byte);

}  // namespace headroom::models
