#include "models/tokenizer/sentencepiece_bpe.h"

#include <queue>
#include <tuple>
#include <utility>

#include "models/tokenizer/utf8.h"

namespace headroom::models {
namespace {

// One character, or what became of several: bytes [begin, begin + size) of the text with visible
// spaces, made from bytes [source_begin, source_end) of the text given. size 0: merged away.
struct Symbol {
  size_t begin = 0;
  size_t size = 0;
  size_t source_begin = 0;
  size_t source_end = 0;
  size_t previous = 0;
  size_t next = 0;
};

// A merge that was possible when it was queued; stale once the two sizes have another sum.
struct Candidate {
  float score = 0;
  size_t left = 0;
  size_t right = 0;
  size_t size = 0;

  bool operator<(const Candidate& other) const {  // the queue's top is its largest
    return score != other.score ? score < other.score : left > other.left;
  }
};

// The symbols of one segment, or of one word of it, and their merging.
class Merger {
 public:
  explicit Merger(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void Clear() {
    spelled_.clear();
    symbols_.clear();
  }
  // Appends text[begin, end) as one symbol per character.
  void Append(std::string_view text, size_t begin, size_t end);
  // A space that the text does not hold; `position` is where it stands.
  void AppendPrefixSpace(size_t position) { AppendSymbol(kVisibleSpace, position, position); }
  void Merge();
  void Emit(EncodingSink* sink) const;

 private:
  void AppendSymbol(std::string_view spelling, size_t source_begin, size_t source_end) {
    symbols_.push_back({spelled_.size(), spelling.size(), source_begin, source_end, 0, 0});
    spelled_ += spelling;
  }
  void Consider(size_t left, size_t right);
  void EmitBytes(const Symbol& symbol, EncodingSink* sink) const;
  std::string_view Spelling(const Symbol& symbol) const {
    return std::string_view(spelled_).substr(symbol.begin, symbol.size);
  }

  const Vocabulary& vocabulary_;
  std::string spelled_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
};

void Merger::Append(std::string_view text, size_t begin, size_t end) {
  const std::string_view until_end = text.substr(0, end);
  for (size_t position = begin; position < end;) {
    const auto num_bytes = static_cast<size_t>(DecodeUtf8(until_end, position).num_bytes);
    const bool is_space = text[position] == ' ';
    AppendSymbol(is_space ? kVisibleSpace : text.substr(position, num_bytes), position,
                 position + num_bytes);
    position += num_bytes;
  }
}

void Merger::Consider(size_t left, size_t right) {
  const size_t size = symbols_[left].size + symbols_[right].size;
  if (size > vocabulary_.max_piece_bytes()) {
    return;
  }
  const int32_t id =
      vocabulary_.FindNormal(std::string_view(spelled_).substr(symbols_[left].begin, size));
  if (id >= 0) {
    queue_.push({vocabulary_.data().scores[id], left, right, size});
  }
}

void Merger::Merge() {
  const size_t none = symbols_.size();
  for (size_t i = 0; i < symbols_.size(); ++i) {
    symbols_[i].previous = i == 0 ? none : i - 1;
    symbols_[i].next = i + 1;
    if (i > 0) {
      Consider(i - 1, i);
    }
  }
  while (!queue_.empty()) {
    const Candidate top = queue_.top();
    queue_.pop();
    Symbol& left = symbols_[top.left];
    Symbol& right = symbols_[top.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != top.size) {
      continue;
    }
    left.size = top.size;
    left.source_end = right.source_end;
    left.next = right.next;
    right.size = 0;
    if (left.next != none) {
      symbols_[left.next].previous = top.left;
      Consider(top.left, left.next);
    }
    if (left.previous != none) {
      Consider(left.previous, top.left);
    }
  }
}

void Merger::Emit(EncodingSink* sink) const {
  for (const Symbol& symbol : symbols_) {
    if (symbol.size == 0) {
      continue;
    }
    if (const int32_t id = vocabulary_.FindNormal(Spelling(symbol)); id >= 0) {
      sink->Add(id, symbol.source_begin, symbol.source_end);
    } else {
      EmitBytes(symbol, sink);
    }
  }
}

void Merger::EmitBytes(const Symbol& symbol, EncodingSink* sink) const {
  const std::string_view spelling = Spelling(symbol);
  // A space that became U+2581 is shorter in the source: then each byte is of the whole span.
  const bool same_bytes = symbol.source_end - symbol.source_begin == symbol.size;
  for (size_t i = 0; i < spelling.size(); ++i) {
    int32_t id = vocabulary_.ByteToken(static_cast<uint8_t>(spelling[i]));
    if (id < 0) {
      id = vocabulary_.FallbackToken();
    }
    if (id >= 0) {
      const size_t begin = symbol.source_begin + (same_bytes ? i : 0);
      sink->Add(id, begin, same_bytes ? begin + 1 : symbol.source_end);
    }
  }
}

bool EndsInVisibleSpace(std::string_view text) {
  return text.size() >= kVisibleSpace.size() &&
         text.substr(text.size() - kVisibleSpace.size()) == kVisibleSpace;
}

// True when the piece has a visible space after something else.
bool HasSpaceInside(std::string_view piece) {
  for (size_t space = piece.find(kVisibleSpace); space != std::string_view::npos;
       space = piece.find(kVisibleSpace, space + kVisibleSpace.size())) {
    if (space > 0 && !EndsInVisibleSpace(piece.substr(0, space))) {
      return true;
    }
  }
  return false;
}

// The first space after `begin` that follows neither a space nor a visible space; `end` if none.
size_t EndOfWord(std::string_view text, size_t begin, size_t end) {
  for (size_t position = begin + 1; position < end; ++position) {
    if (text[position] == ' ' && text[position - 1] != ' ' &&
        !EndsInVisibleSpace(text.substr(begin, position - begin))) {
      return position;
    }
  }
  return end;
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> SentencePieceBpe::Create(TokenizerData data) {
  if (data.scores.empty()) {
    return InvalidArgument("tokenizer: model 'llama' merges by score, but no scores are given");
  }
  HEADROOM_ASSIGN_OR_RETURN(Vocabulary vocabulary,
                            Vocabulary::Create(std::move(data), PieceSpelling::kSentencePiece));
  return std::unique_ptr<Tokenizer>(new SentencePieceBpe(std::move(vocabulary)));
}

SentencePieceBpe::SentencePieceBpe(Vocabulary taken_vocabulary)
    : VocabularyTokenizer(std::move(taken_vocabulary)) {
  merges_stay_in_words_ = true;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (Type(id) == TokenType::kNormal && HasSpaceInside(TokenPiece(id))) {
      merges_stay_in_words_ = false;
    }
  }
}

void SentencePieceBpe::EncodeSegment(std::string_view text, size_t begin, size_t end,
                                     EncodingSink* sink) const {
  Merger merger(vocabulary());
  if (vocabulary().data().add_space_prefix) {
    merger.AppendPrefixSpace(begin);
  }
  while (begin < end) {
    const size_t part_end = merges_stay_in_words_ ? EndOfWord(text, begin, end) : end;
    merger.Append(text, begin, part_end);
    merger.Merge();
    merger.Emit(sink);
    merger.Clear();
    begin = part_end;
  }
}

}  // namespace headroom::models
