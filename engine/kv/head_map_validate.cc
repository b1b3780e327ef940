#include <algorithm>

#include "base/sha256.h"
#include "engine/kv/head_map.h"
#include "models/tokenizer/utf8.h"

namespace headroom::engine {
namespace {

constexpr int64_t kOne = 1'000'000;
constexpr int64_t kMaxTokens = int64_t{1} << 31;
constexpr int64_t kMaxCount = int64_t{1} << 53;  // whole numbers of JSON
constexpr int64_t kMaxMeasure = kOne * kOne;     // a loss, an error: a million
constexpr int32_t kMaxLayers = 4096;
constexpr int32_t kMaxHeads = 4096;
constexpr size_t kMaxText = 256;
constexpr int64_t kMassRounding = 100;  // masses are rounded one by one before they are added

// Well-formed UTF-8 without control characters: what JSON holds and terminals show.
bool IsPrintable(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const models::Utf8Char character = models::DecodeUtf8(text, i);
    if (character.result != models::Utf8Result::kCharacter || character.code_point < 0x20 ||
        character.code_point == 0x7f) {
      return false;
    }
    i += static_cast<size_t>(character.num_bytes);
  }
  return true;
}

// Remembers the first fault.
class Checker {
 public:
  const Status& status() const { return status_; }

  void Fail(const std::string& path, const std::string& got, const std::string& wanted) {
    if (status_.ok()) {
      status_ = InvalidArgument("head map: {}: got {}, wanted {}", path, got, wanted);
    }
  }
  void Count(const std::string& path, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most) {
      Fail(path, fmt::format("{}", value), fmt::format("{} to {}", least, most));
    }
  }
  void Ppm(const std::string& path, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most) {
      Fail(path, PpmText(value), fmt::format("{} to {}", PpmText(least), PpmText(most)));
    }
  }
  void Share(const std::string& path, int64_t value) { Ppm(path, value, 0, kOne); }
  // -1 stands for what was not measured.
  void Measured(const std::string& path, int64_t value, int64_t most) {
    if (value != -1) {
      Ppm(path, value, 0, most);
    }
  }
  void Text(const std::string& path, const std::string& value, bool may_be_empty = false) {
    const bool printable = IsPrintable(value);
    if (!printable || value.size() > kMaxText || (value.empty() && !may_be_empty)) {
      Fail(path,
           fmt::format("{} bytes{}", value.size(),
                       printable ? "" : ", control characters or ill-formed UTF-8 among them"),
           fmt::format("{} to {} bytes of text", may_be_empty ? 0 : 1, kMaxText));
    }
  }
  void OneOf(const std::string& path, const std::string& value,
             std::initializer_list<const char*> names) {
    if (std::find(names.begin(), names.end(), value) == names.end()) {
      Text(path, value, /*may_be_empty=*/true);
      Fail(path, fmt::format("\"{}\"", value), fmt::format("one of {}", fmt::join(names, ", ")));
    }
  }
  void Hash(const std::string& path, const std::string& value, bool may_be_empty = false) {
    if (!IsSha256Text(value) && !(value.empty() && may_be_empty)) {
      Fail(path, fmt::format("{} bytes", value.size()), "sha256: and 64 lower-case hex digits");
    }
  }
  void Size(const std::string& path, size_t size, int64_t wanted) {
    if (static_cast<int64_t>(size) != wanted) {
      Fail(path, fmt::format("{} members", size), fmt::format("{}", wanted));
    }
  }
  void Ascends(const std::string& path, bool ascends) {
    if (!ascends) {
      Fail(path, "it out of order or twice", "ascending members, each once");
    }
  }

 private:
  Status status_;
};

void CheckModel(const MapModel& model, Checker& check) {
  check.Text("model.name", model.name);
  check.Count("model.layers", model.num_layers, 1, kMaxLayers);
  check.Count("model.query_heads", model.num_query_heads, 1, kMaxHeads);
  check.Count("model.kv_heads", model.num_kv_heads, 1, kMaxHeads);
  check.Count("model.head_dim", model.head_dim, 1, 1 << 16);
  if (check.status().ok() && model.num_query_heads % model.num_kv_heads != 0) {
    check.Fail("model.query_heads", fmt::format("{}", model.num_query_heads),
               fmt::format("a multiple of the {} KV heads", model.num_kv_heads));
  }
  check.Hash("model.arch_hash", model.arch_hash);
  check.Hash("model.weights_hash", model.weights_hash);
  check.OneOf("model.weights_scope", model.weights_scope, {"full"});
  check.Text("model.weights_dtype", model.weights_dtype, /*may_be_empty=*/true);
}

void CheckTokenizer(const MapTokenizer& tokenizer, Checker& check) {
  check.Hash("tokenizer.vocab_hash", tokenizer.vocab_hash, /*may_be_empty=*/true);
  check.Hash("tokenizer.chat_template_hash", tokenizer.chat_template_hash, /*may_be_empty=*/true);
  check.Hash("tokenizer.punct_ids_hash", tokenizer.punct_ids_hash, /*may_be_empty=*/true);
  check.Text("tokenizer.punct_rule", tokenizer.punct_rule, /*may_be_empty=*/true);
  for (size_t i = 0; i < tokenizer.special_ids.size(); ++i) {
    const std::string path = fmt::format("tokenizer.special_ids[{}]", i);
    check.Count(path, tokenizer.special_ids[i], 0, kMaxTokens - 1);
    check.Ascends(path, i == 0 || tokenizer.special_ids[i - 1] < tokenizer.special_ids[i]);
  }
}

void CheckCorpus(const std::string& path, const std::vector<MapCorpus>& corpus, Checker& check) {
  for (size_t i = 0; i < corpus.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    check.Text(at + ".domain", corpus[i].domain);
    check.Hash(at + ".hash", corpus[i].hash);
    check.Count(at + ".prompts", corpus[i].prompts, 0, kMaxCount);
    check.Count(at + ".tokens", corpus[i].tokens, 0, kMaxCount);
    check.Ascends(at, i == 0 || corpus[i - 1].domain < corpus[i].domain);
  }
}

void CheckProfile(const MapProfile& profile, Checker& check) {
  check.Text("profile.version", profile.version, /*may_be_empty=*/true);
  check.Text("profile.backend", profile.backend, /*may_be_empty=*/true);
  check.Text("profile.kv_dtype", profile.kv_dtype, /*may_be_empty=*/true);
  check.OneOf("profile.metric", profile.metric, {"kept_mass"});
  check.OneOf("profile.ladder", profile.ladder, {"default/1", "paper/1"});
  check.OneOf("profile.classifier", profile.classifier, {"threshold/1", "cluster/1"});
  check.OneOf("profile.group_reduce", profile.group_reduce, {"min"});
  check.Text("profile.eval_rows", profile.eval_rows);
  check.Text("profile.select_rows", profile.select_rows);
  check.Ppm("profile.theta", profile.theta_ppm, 1, kOne);
  check.Ppm("profile.budget_ratio", profile.budget_ratio_ppm, 1, kOne);
  check.Share("profile.probe_threshold", profile.probe_threshold_ppm);
  check.Count("profile.sink_tokens", profile.sink_tokens, 0, 64);
  check.Count("profile.recent_tokens", profile.recent_tokens, 0, 1 << 20);
  check.Count("profile.reference_tokens", profile.reference_tokens, 0, kMaxTokens);
  check.Count("profile.reference_special", profile.reference_special, 0, kMaxTokens);
  check.Count("profile.reference_punctuation", profile.reference_punctuation, 0, kMaxTokens);
  CheckCorpus("profile.corpus", profile.corpus, check);
  CheckCorpus("profile.probes", profile.probes, check);
}

void CheckCurve(const std::string& path, const std::vector<CurvePoint>& curve, int64_t most,
                Checker& check) {
  for (size_t i = 0; i < curve.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    check.Count(at + "[0]", curve[i].size, 0, most);
    check.Share(at + "[1]", curve[i].mass_ppm);
    check.Ascends(at, i == 0 || curve[i - 1].size < curve[i].size);
  }
}

void CheckRecovery(const std::string& path, const HeadEntry& head, const HeadEntry& first,
                   Checker& check) {
  check.Size(path, head.recovery.size(), static_cast<int64_t>(first.recovery.size()));
  for (size_t i = 0; check.status().ok() && i < head.recovery.size(); ++i) {
    const RungRecovery& rung = head.recovery[i];
    const std::string at = fmt::format("{}[{}]", path, i);
    check.Text(at + ".rung", rung.rung);
    if (rung.rung != first.recovery[i].rung) {
      check.Fail(at + ".rung", fmt::format("\"{}\"", rung.rung),
                 fmt::format("the first head's \"{}\"", first.recovery[i].rung));
    }
    for (size_t j = 0; j < i; ++j) {
      check.Ascends(at + ".rung", head.recovery[j].rung != rung.rung);
    }
    check.Share(at + ".p10", rung.p10_ppm);
    check.Share(at + ".mean", rung.mean_ppm);
    check.Measured(at + ".value_error", rung.value_error_ppm, kMaxMeasure);
  }
}

void CheckBudget(const std::string& path, const HeadEntry& head, Checker& check) {
  check.Count(path + ".budget.tokens", head.budget_tokens, 0, kMaxTokens);
  check.Share(path + ".budget.share", head.budget_ppm);
  check.Count(path + ".window", head.window, 0, kMaxTokens - 1);
  check.Share(path + ".heavy_share", head.heavy_ppm);
  check.Ppm(path + ".weight", head.weight_ppm, 1, 1000 * kOne);
  if (head.type == HeadType::kLocal && head.window == 0 && head.budget_tokens == 0 &&
      head.budget_ppm == 0) {
    check.Fail(path + ".window", "0", "a window or a budget of a local head");
  }
}

void CheckHead(const std::string& path, const HeadMap& map, const HeadEntry& head, Checker& check) {
  check.Count(path + ".type", static_cast<int64_t>(head.type), 0, kNumHeadTypes - 1);
  check.Share(path + ".confidence", head.confidence_ppm);
  check.Ppm(path + ".margin", head.margin_ppm, -kOne, kOne);
  CheckBudget(path, head, check);
  check.Share(path + ".copy", head.copy_ppm);
  check.Share(path + ".induction", head.induction_ppm);
  check.Count(path + ".fill_rank", head.fill_rank, -1,
              static_cast<int64_t>(map.heads.size()) - 1);
  int64_t mass = 0;
  for (const int64_t part : head.masses_ppm) {
    check.Share(path + ".masses", part);
    mass += check.status().ok() ? part : 0;
  }
  check.Ppm(path + ".masses (their sum)", mass, 0, kOne + kMassRounding);
  CheckRecovery(path + ".recovery", head, map.heads.front(), check);
  CheckCurve(path + ".curve_heavy", head.curve_heavy, kOne, check);
  CheckCurve(path + ".curve_local", head.curve_local, kMaxTokens, check);
  for (size_t i = 0; i < head.per_domain.size(); ++i) {
    const auto& [domain, type] = head.per_domain[i];
    check.Text(path + ".per_domain", domain);
    check.Count(path + ".per_domain", static_cast<int64_t>(type), 0, kNumHeadTypes - 1);
    check.Ascends(path + ".per_domain", i == 0 || head.per_domain[i - 1].first < domain);
  }
  if (!head.query_types.empty()) {
    check.Size(path + ".query_types", head.query_types.size(),
               map.model.num_query_heads / map.model.num_kv_heads);
  }
}

void CheckHeads(const HeadMap& map, Checker& check) {
  const int64_t wanted = int64_t{map.model.num_layers} * map.model.num_kv_heads;
  check.Size("layers (heads of all)", map.heads.size(), wanted);
  for (int64_t i = 0; check.status().ok() && i < wanted; ++i) {
    CheckHead(
        fmt::format("layers[{}].kv[{}]", i / map.model.num_kv_heads, i % map.model.num_kv_heads),
        map, map.heads[static_cast<size_t>(i)], check);
  }
}

void CheckTsp(const HeadMap& map, Checker& check) {
  const TspChoice& tsp = map.tsp;
  check.Count("tsp.layer", tsp.layer, 0, map.model.num_layers - 1);
  if (!tsp.overlap_ppm.empty()) {
    check.Size("tsp.overlap", tsp.overlap_ppm.size(), map.model.num_layers);
  }
  for (size_t i = 0; i < tsp.overlap_ppm.size(); ++i) {
    check.Share(fmt::format("tsp.overlap[{}]", i), tsp.overlap_ppm[i]);
  }
  for (size_t i = 0; i < tsp.candidates.size(); ++i) {
    const TspCandidate& candidate = tsp.candidates[i];
    const std::string at = fmt::format("tsp.candidates[{}]", i);
    check.Count(at + ".layer", candidate.layer, 0, map.model.num_layers - 1);
    check.Ppm(at + ".tsp", candidate.tsp_ppm, 1, kOne);
    check.Share(at + ".row_layers", candidate.row_layers_ppm);
    check.Share(at + ".probe_above", candidate.probe_above_ppm);
    check.Ppm(at + ".delta_nll", candidate.delta_nll_ppm, -kMaxMeasure, kMaxMeasure);
    check.Measured(at + ".seen", candidate.seen_ppm, kOne);
    check.Measured(at + ".unseen", candidate.unseen_ppm, kOne);
    const auto key = [](const TspCandidate& c) { return std::pair(c.layer, c.tsp_ppm); };
    check.Ascends(at, i == 0 || key(tsp.candidates[i - 1]) < key(candidate));
  }
}

void CheckSpend(const HeadMap& map, Checker& check) {
  constexpr std::array<const char*, 3> kPrefer = {"answers", "balanced", "fluency"};
  check.Size("spend", map.spend.size(), kPrefer.size());
  for (size_t i = 0; check.status().ok() && i < map.spend.size(); ++i) {
    const SpendPlan& plan = map.spend[i];
    const std::string at = fmt::format("spend[{}]", i);
    check.OneOf(at + ".prefer", plan.prefer, {kPrefer[i]});
    check.Ppm(at + ".local_share", plan.local_share_ppm, 0, kOne / 2);
    if (plan.points.empty()) {
      check.Fail(at + ".points", "none", "at least one");
    }
    for (size_t j = 0; check.status().ok() && j < plan.points.size(); ++j) {
      const SpendPoint& point = plan.points[j];
      const std::string place = fmt::format("{}.points[{}]", at, j);
      check.Ppm(place + ".retention", point.retention_ppm, 1, kOne);
      check.Share(place + ".dense_share", point.dense_share_ppm);
      const SpendPoint& before = plan.points[j == 0 ? 0 : j - 1];
      check.Ascends(place, j == 0 || before.retention_ppm < point.retention_ppm);
      if (check.status().ok() && point.retention_ppm * point.dense_share_ppm <
                                     before.retention_ppm * before.dense_share_ppm) {
        check.Fail(place + ".dense_share", PpmText(point.dense_share_ppm),
                   "a product with the retention that does not shrink");
      }
    }
  }
}

void CheckRows(const std::string& path, const std::vector<ValidationRow>& rows, Checker& check) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const ValidationRow& row = rows[i];
    const std::string at = fmt::format("{}[{}]", path, i);
    check.Text(at + ".policy", row.policy);
    check.Ppm(at + ".retention", row.retention_ppm, 1, kOne);
    check.Measured(at + ".dense_share", row.dense_share_ppm, kOne);
    check.Measured(at + ".local_share", row.local_share_ppm, kOne);
    check.Share(at + ".entries", row.entries_ppm);
    check.Ppm(at + ".delta_nll", row.delta_nll_ppm, -kMaxMeasure, kMaxMeasure);
    check.Ppm(at + ".kl", row.kl_ppm, -kMaxMeasure, kMaxMeasure);
    check.Ppm(at + ".p99_kl", row.p99_kl_ppm, -kMaxMeasure, kMaxMeasure);
    check.Share(at + ".top1", row.top1_ppm);
    check.Measured(at + ".seen", row.seen_ppm, kOne);
    check.Measured(at + ".unseen", row.unseen_ppm, kOne);
  }
}

void CheckValidation(const MapValidation& validation, Checker& check) {
  check.OneOf("validation.status", validation.status, {"pass", "fail", "unvalidated"});
  for (size_t i = 0; i < validation.reasons.size(); ++i) {
    check.Text(fmt::format("validation.reasons[{}]", i), validation.reasons[i]);
  }
  check.Count("validation.documents", validation.documents, 0, kMaxTokens - 1);
  check.Count("validation.needles", validation.needles, 0, kMaxTokens - 1);
  CheckRows("validation.rows", validation.rows, check);
  CheckRows("validation.front", validation.front, check);
}

}  // namespace

Status ValidateHeadMap(const HeadMap& map) {
  Checker check;
  CheckModel(map.model, check);
  CheckTokenizer(map.tokenizer, check);
  CheckProfile(map.profile, check);
  if (check.status().ok()) {
    CheckHeads(map, check);
    CheckTsp(map, check);
    CheckSpend(map, check);
    CheckValidation(map.validation, check);
  }
  for (size_t i = 0; i < map.bound.size(); ++i) {
    const std::string path = fmt::format("bound[{}]", i);
    check.Hash(path, map.bound[i]);
    check.Ascends(path, i == 0 || map.bound[i - 1] < map.bound[i]);
  }
  return check.status();
}

}  // namespace headroom::engine
