// Text <-> token ids.
//
// A tokenizer is immutable and safe to use from any thread. Work is linear (or n log n) in the
// input; no recursion; nothing in the text can make it fail but its size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headroom::models {

// Half-open range of bytes.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Rendered text that knows which bytes came from a message (untrusted) and which from the chat
// template (trusted). Ranges are ascending and do not touch.
struct ProvenancedText {
  std::string text;
  std::vector<ByteRange> message_ranges;
};

struct Encoding {
  std::vector<int32_t> ids;
  std::vector<uint8_t> from_message;  // [ids.size()], 1 when the token holds a message byte
};

enum class TokenType : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

// What a model file says of its tokenizer, GGUF's fields (tokenizer.ggml.*).
struct TokenizerData {
  std::string model;                   // "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
  std::string pre;                     // pre-tokenizer: "smollm", "gpt-2", "default", ...
  std::vector<std::string> tokens;     // [vocab]
  std::vector<float> scores;           // [vocab] or empty
  std::vector<TokenType> token_types;  // [vocab] or empty (all normal)
  std::vector<std::string> merges;     // "left right", by rank; empty for "llama"
  int32_t bos_id = -1;                 // -1: none
  int32_t eos_id = -1;
  int32_t unk_id = -1;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = true;  // "llama" only
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual int32_t vocab_size() const = 0;
  virtual int32_t bos_id() const = 0;  // -1: none
  virtual int32_t eos_id() const = 0;  // -1: none
  virtual bool add_bos() const = 0;    // the model wants a BOS in front of plain text

  // Tokenises text as a whole. Special tokens (control and user-defined pieces) are recognised
  // only in bytes outside `message_ranges`; elsewhere their spelling is plain text. One exception:
  // a user-defined piece of letters, digits, marks and white space alone (a run of spaces, a rare
  // letter) is a word of the vocabulary, not markup, and is recognised everywhere. No BOS is
  // added. Invalid UTF-8 is encoded byte by byte, never refused; a byte for which the vocabulary
  // has no piece becomes U+FFFD's pieces ("gpt2"), else the unknown token (unless it is a control
  // token), else nothing.
  // `message_ranges` may also be empty ranges; past the end of the text they mean nothing.
  virtual Encoding Encode(const ProvenancedText& text) const = 0;

  // Plain text: all of it a message when !parse_special, all of it template otherwise.
  std::vector<int32_t> Encode(std::string_view text, bool add_bos, bool parse_special) const;

  // The bytes that a token stands for in running text; empty for control tokens and for ids out
  // of range. For "llama" a leading space is the piece's own.
  virtual std::string_view TokenBytes(int32_t id) const = 0;

  // The piece as the vocabulary spells it (control tokens included), for inspection and logprobs.
  virtual std::string_view TokenPiece(int32_t id) const = 0;
  virtual TokenType Type(int32_t id) const = 0;

  // The id of an exact special piece, or -1.
  virtual int32_t FindSpecial(std::string_view piece) const = 0;

  // True when decoding drops the one space that encoding put in front of the text ("llama").
  virtual bool strips_leading_space() const = 0;
};

// Errors: unknown model or pre-tokenizer (named), lists of other lengths than the vocabulary's,
// merges that do not name tokens, ids out of range, byte tokens that are malformed, scores that
// are not numbers or missing ("llama"). The message says which entry. Of two equal pieces of a
// kind, encoding uses the lower id. BOS and EOS count as control tokens where the file calls them
// normal.
StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(TokenizerData data);

// The 256-byte tokenizer of builtin:tiny: ids 0..255 are bytes, then `special_pieces` as control
// tokens, in order.
std::unique_ptr<Tokenizer> CreateByteTokenizer(std::vector<std::string> special_pieces,
                                               int32_t bos_index, int32_t eos_index);

// Turns ids into text one at a time, holding bytes back until they are whole UTF-8.
class IncrementalDetokenizer {
 public:
  // `continues_text`: false strips the leading space of a "llama" text start.
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer, bool continues_text = true);

  // Text that became complete with this token; well-formed UTF-8, maybe empty. Bytes that can
  // never become a character come out as U+FFFD.
  std::string Add(int32_t id);

  // What was held back, as U+FFFD for an unfinished character. Call once, at the end.
  std::string Flush();

 private:
  const Tokenizer& tokenizer_;
  bool strip_space_;
  std::string pending_;  // at most 3 bytes of an unfinished character
};

}  // namespace headroom::models
