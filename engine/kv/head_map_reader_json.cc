#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "engine/kv/head_map.h"
#include "engine/kv/head_map_json.h"
#include "models/file_error.h"
#include "models/strict_json.h"

namespace headroom::engine {
namespace {

using models::Printable;

// The members of one JSON object, each asked for once; remembers the first fault of the whole map
// in `status`. After a fault the values are of no use, and nothing is read any more.
class Members {
 public:
  Members(const Json& object, std::string path, Status& status)
      : object_(object), path_(std::move(path)), status_(status) {
    if (status_.ok() && !object_.is_object()) {
      Fail("", "an object");
    }
  }
  // Whatever was not asked for is unknown.
  ~Members() {
    if (!status_.ok()) {
      return;
    }
    for (const auto& item : object_.items()) {
      if (taken_.count(item.key()) == 0) {
        status_ = InvalidArgument("head map: {}: unknown member \"{}\"",
                                  path_.empty() ? "the map" : path_, Printable(item.key()));
        return;
      }
    }
  }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  Status& status() { return status_; }
  std::string PathOf(const std::string& key) const {
    const char* dot = path_.empty() || key.empty() ? "" : ".";
    return fmt::format("{}{}{}", path_, dot, Printable(key));
  }

  // Null after a fault.
  const Json* Take(const char* key) {
    if (!status_.ok()) {
      return nullptr;
    }
    const auto place = object_.find(key);
    if (place == object_.end()) {
      status_ = InvalidArgument("head map: {}: missing", PathOf(key));
      return nullptr;
    }
    taken_.insert(key);
    return &*place;
  }

  void Text(const char* key, std::string* out) {
    const Json* value = Take(key);
    if (value != nullptr && value->is_string()) {
      *out = value->get<std::string>();
    } else if (value != nullptr) {
      Fail(key, "text");
    }
  }
  void Bool(const char* key, bool* out) {
    const Json* value = Take(key);
    if (value != nullptr && value->is_boolean()) {
      *out = value->get<bool>();
    } else if (value != nullptr) {
      Fail(key, "true or false");
    }
  }
  template <typename Integer>
  void Int(const char* key, Integer* out) {
    if (const Json* value = Take(key); value != nullptr && !ReadInt(*value, out)) {
      Fail(key, fmt::format("a whole number of {} bits", 8 * sizeof(Integer)));
    }
  }
  void Ratio(const char* key, int64_t* out) {
    if (const Json* value = Take(key); value != nullptr && !ReadRatio(*value, out)) {
      Fail(key, "a decimal of at most six places");
    }
  }
  // null: none, which is -1.
  void Rank(const char* key, int32_t* out) {
    const Json* value = Take(key);
    if (value == nullptr) {
      return;
    }
    *out = -1;
    if (!value->is_null() && (!ReadInt(*value, out) || *out < 0)) {
      Fail(key, "null or a whole number of 32 bits, not negative");
    }
  }
  // null: not measured.
  void Measured(const char* key, int64_t* out) {
    const Json* value = Take(key);
    if (value == nullptr) {
      return;
    }
    *out = -1;
    if (!value->is_null() && (!ReadRatio(*value, out) || *out < 0)) {
      Fail(key, "null or a decimal of at most six places, not negative");
    }
  }
  void Type(const char* key, HeadType* out) {
    const Json* value = Take(key);
    if (value != nullptr && !ReadType(*value, out)) {
      Fail(key, "special, punct, local, heavy or dense");
    }
  }
  // Calls read(member, path) for each member of a list until the first fault.
  template <typename Read>
  void List(const char* key, Read read) {
    const Json* value = Take(key);
    if (value == nullptr) {
      return;
    }
    if (!value->is_array()) {
      return Fail(key, "a list");
    }
    for (size_t i = 0; i < value->size() && status_.ok(); ++i) {
      read((*value)[i], fmt::format("{}[{}]", PathOf(key), i));
    }
  }

  void Fail(const std::string& key, const std::string& wanted) {
    if (!status_.ok()) {
      return;
    }
    const Json& value = key.empty() ? object_ : object_[key];
    const std::string path = PathOf(key);
    status_ = FaultAt(path.empty() ? "the map" : path, value, wanted);
  }

  static Status FaultAt(const std::string& path, const Json& value, const std::string& wanted) {
    std::string got = value.type_name();
    if (value.is_number() || value.is_boolean()) {
      got = value.dump();
    } else if (value.is_string()) {
      got = fmt::format("\"{}\"", Printable(value.get_ref<const std::string&>()));
    }
    return InvalidArgument("head map: {}: got {}, wanted {}", path, got, wanted);
  }

  template <typename Integer>
  static bool ReadInt(const Json& value, Integer* out) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<uint64_t>();
      *out = static_cast<Integer>(number);
      return number <= static_cast<uint64_t>(std::numeric_limits<Integer>::max());
    }
    if (!value.is_number_integer()) {
      return false;
    }
    const auto number = value.get<int64_t>();  // negative: others are unsigned
    *out = static_cast<Integer>(number);
    return std::numeric_limits<Integer>::is_signed &&
           number >= static_cast<int64_t>(std::numeric_limits<Integer>::min());
  }

  // Exact: only numbers that a decimal of six places names.
  static bool ReadRatio(const Json& value, int64_t* out) {
    constexpr double kMost = 1e9;  // times 1e6 stays below 2^53
    if (!value.is_number()) {
      return false;
    }
    const auto number = value.get<double>();
    if (!std::isfinite(number) || std::abs(number) > kMost) {
      return false;
    }
    *out = std::llround(number * 1e6);
    return static_cast<double>(*out) / 1e6 == number;
  }

  static bool ReadType(const Json& value, HeadType* out) {
    const auto type = value.is_string() ? FindHeadType(value.get_ref<const std::string&>())
                                        : std::optional<HeadType>();
    *out = type.value_or(*out);
    return type.has_value();
  }

 private:
  const Json& object_;
  const std::string path_;
  Status& status_;
  std::set<std::string> taken_;
};

void ReadTexts(Members& members, const char* key, std::vector<std::string>* out) {
  members.List(key, [&](const Json& value, const std::string& path) {
    if (!value.is_string()) {
      members.status() = Members::FaultAt(path, value, "text");
      return;
    }
    out->push_back(value.get<std::string>());
  });
}

void Read(const Json& json, Status& status, MapModel* model) {
  Members members(json, "model", status);
  members.Text("name", &model->name);
  members.Int("layers", &model->num_layers);
  members.Int("query_heads", &model->num_query_heads);
  members.Int("kv_heads", &model->num_kv_heads);
  members.Int("head_dim", &model->head_dim);
  members.Text("arch_hash", &model->arch_hash);
  members.Text("weights_hash", &model->weights_hash);
  members.Text("weights_scope", &model->weights_scope);
  members.Text("weights_dtype", &model->weights_dtype);
}

void Read(const Json& json, Status& status, MapTokenizer* tokenizer) {
  Members members(json, "tokenizer", status);
  members.Text("vocab_hash", &tokenizer->vocab_hash);
  members.Text("chat_template_hash", &tokenizer->chat_template_hash);
  members.List("special_ids", [&](const Json& value, const std::string& path) {
    int32_t id = 0;
    if (!Members::ReadInt(value, &id)) {
      status = Members::FaultAt(path, value, "a token id");
    }
    tokenizer->special_ids.push_back(id);
  });
  members.Text("punct_rule", &tokenizer->punct_rule);
  members.Text("punct_ids_hash", &tokenizer->punct_ids_hash);
}

void ReadCorpus(Members& members, const char* key, std::vector<MapCorpus>* corpus) {
  members.List(key, [&](const Json& value, const std::string& path) {
    Members part(value, path, members.status());
    MapCorpus& out = corpus->emplace_back();
    part.Text("domain", &out.domain);
    part.Text("hash", &out.hash);
    part.Int("prompts", &out.prompts);
    part.Int("tokens", &out.tokens);
  });
}

void Read(const Json& json, Status& status, MapProfile* profile) {
  Members members(json, "profile", status);
  members.Text("version", &profile->version);
  members.Text("backend", &profile->backend);
  members.Text("kv_dtype", &profile->kv_dtype);
  members.Text("metric", &profile->metric);
  members.Text("ladder", &profile->ladder);
  members.Text("classifier", &profile->classifier);
  members.Text("group_reduce", &profile->group_reduce);
  members.Text("eval_rows", &profile->eval_rows);
  members.Text("select_rows", &profile->select_rows);
  members.Ratio("theta", &profile->theta_ppm);
  members.Ratio("budget_ratio", &profile->budget_ratio_ppm);
  members.Ratio("probe_threshold", &profile->probe_threshold_ppm);
  members.Int("sink_tokens", &profile->sink_tokens);
  members.Int("recent_tokens", &profile->recent_tokens);
  members.Int("seed", &profile->seed);
  members.Int("reference_tokens", &profile->reference_tokens);
  members.Int("reference_special", &profile->reference_special);
  members.Int("reference_punctuation", &profile->reference_punctuation);
  ReadCorpus(members, "corpus", &profile->corpus);
  ReadCorpus(members, "probes", &profile->probes);
}

// Pairs [size, mass] or [retention, share]; sizes are whole numbers unless they are ratios.
void ReadPairs(Members& members, const char* key, bool first_is_ratio,
               std::vector<std::pair<int64_t, int64_t>>* pairs) {
  members.List(key, [&](const Json& value, const std::string& path) {
    auto& [first, second] = pairs->emplace_back();
    if (!value.is_array() || value.size() != 2 ||
        !(first_is_ratio ? Members::ReadRatio(value[0], &first)
                         : Members::ReadInt(value[0], &first)) ||
        !Members::ReadRatio(value[1], &second)) {
      members.status() = Members::FaultAt(
          path, value, first_is_ratio ? "[ratio, ratio]" : "[whole number, ratio]");
    }
  });
}

void ReadCurve(Members& members, const char* key, bool sizes_are_shares,
               std::vector<CurvePoint>* curve) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  ReadPairs(members, key, sizes_are_shares, &pairs);
  for (const auto& [size, mass] : pairs) {
    curve->push_back({.size = size, .mass_ppm = mass});
  }
}

void ReadBudget(Members& head, HeadEntry* out) {
  if (const Json* value = head.Take("budget")) {
    Members budget(*value, head.PathOf("budget"), head.status());
    budget.Int("tokens", &out->budget_tokens);
    budget.Ratio("share", &out->budget_ppm);
  }
  if (const Json* value = head.Take("masses")) {
    Members masses(*value, head.PathOf("masses"), head.status());
    for (size_t i = 0; i < kMassNames.size(); ++i) {
      masses.Ratio(kMassNames[i], &out->masses_ppm[i]);
    }
  }
}

void ReadRecovery(Members& head, HeadEntry* out) {
  head.List("recovery", [&](const Json& value, const std::string& path) {
    Members rung(value, path, head.status());
    RungRecovery& recovery = out->recovery.emplace_back();
    rung.Text("rung", &recovery.rung);
    rung.Ratio("p10", &recovery.p10_ppm);
    rung.Ratio("mean", &recovery.mean_ppm);
    rung.Measured("value_error", &recovery.value_error_ppm);
  });
}

void ReadLabels(Members& head, HeadEntry* out) {
  const Json* domains = head.Take("per_domain");
  if (domains != nullptr && !domains->is_object()) {
    head.Fail("per_domain", "an object");
  } else if (domains != nullptr) {
    Members members(*domains, head.PathOf("per_domain"), head.status());
    for (const auto& item : domains->items()) {
      HeadType type = HeadType::kHeavy;
      members.Type(item.key().c_str(), &type);
      out->per_domain.emplace_back(item.key(), type);
    }
  }
  head.List("query_types", [&](const Json& value, const std::string& path) {
    HeadType type = HeadType::kHeavy;
    if (!Members::ReadType(value, &type)) {
      head.status() = Members::FaultAt(path, value, "special, punct, local, heavy or dense");
    }
    out->query_types.push_back(type);
  });
}

void ReadHead(const Json& json, const std::string& path, Status& status, HeadEntry* out) {
  Members head(json, path, status);
  head.Type("type", &out->type);
  head.Ratio("confidence", &out->confidence_ppm);
  head.Ratio("margin", &out->margin_ppm);
  head.Bool("borderline", &out->borderline);
  ReadBudget(head, out);
  head.Int("window", &out->window);
  head.Bool("keeps_punctuation", &out->keeps_punctuation);
  head.Ratio("heavy_share", &out->heavy_ppm);
  head.Ratio("weight", &out->weight_ppm);
  head.Ratio("copy", &out->copy_ppm);
  head.Ratio("induction", &out->induction_ppm);
  head.Rank("fill_rank", &out->fill_rank);
  ReadRecovery(head, out);
  ReadCurve(head, "curve_heavy", /*sizes_are_shares=*/true, &out->curve_heavy);
  ReadCurve(head, "curve_local", /*sizes_are_shares=*/false, &out->curve_local);
  ReadLabels(head, out);
}

void ReadLayers(Members& root, HeadMap* map) {
  int64_t num_layers = 0;
  root.List("layers", [&](const Json& value, const std::string& path) {
    ++num_layers;
    int64_t num_heads = 0;
    Members layer(value, path, root.status());
    layer.List("kv", [&](const Json& head, const std::string& at) {
      ++num_heads;
      ReadHead(head, at, root.status(), &map->heads.emplace_back());
    });
    if (root.status().ok() && num_heads != map->model.num_kv_heads) {
      root.status() = InvalidArgument("head map: {}.kv: got {} heads, wanted {}", path, num_heads,
                                      map->model.num_kv_heads);
    }
  });
  if (root.status().ok() && num_layers != map->model.num_layers) {
    root.status() =
        InvalidArgument("head map: layers: got {}, wanted {}", num_layers, map->model.num_layers);
  }
}

void Read(const Json& json, Status& status, TspChoice* tsp) {
  Members members(json, "tsp", status);
  members.Int("layer", &tsp->layer);
  members.List("overlap", [&](const Json& value, const std::string& path) {
    if (!Members::ReadRatio(value, &tsp->overlap_ppm.emplace_back())) {
      status = Members::FaultAt(path, value, "a decimal of at most six places");
    }
  });
  members.List("candidates", [&](const Json& value, const std::string& path) {
    Members candidate(value, path, status);
    TspCandidate& out = tsp->candidates.emplace_back();
    candidate.Int("layer", &out.layer);
    candidate.Ratio("tsp", &out.tsp_ppm);
    candidate.Ratio("row_layers", &out.row_layers_ppm);
    candidate.Ratio("probe_above", &out.probe_above_ppm);
    candidate.Ratio("delta_nll", &out.delta_nll_ppm);
    candidate.Measured("seen", &out.seen_ppm);
    candidate.Measured("unseen", &out.unseen_ppm);
    candidate.Bool("validated", &out.validated);
  });
}

void ReadSpend(Members& root, std::vector<SpendPlan>* spend) {
  root.List("spend", [&](const Json& value, const std::string& path) {
    Members plan(value, path, root.status());
    SpendPlan& out = spend->emplace_back();
    plan.Text("prefer", &out.prefer);
    plan.Ratio("local_share", &out.local_share_ppm);
    plan.Bool("layers_by_demand", &out.layers_by_demand);
    std::vector<std::pair<int64_t, int64_t>> pairs;
    ReadPairs(plan, "points", /*first_is_ratio=*/true, &pairs);
    for (const auto& [retention, share] : pairs) {
      out.points.push_back({.retention_ppm = retention, .dense_share_ppm = share});
    }
  });
}

void ReadRows(Members& members, const char* key, std::vector<ValidationRow>* rows) {
  members.List(key, [&](const Json& value, const std::string& path) {
    Members row(value, path, members.status());
    ValidationRow& out = rows->emplace_back();
    row.Text("policy", &out.policy);
    row.Ratio("retention", &out.retention_ppm);
    row.Measured("dense_share", &out.dense_share_ppm);
    row.Measured("local_share", &out.local_share_ppm);
    row.Ratio("entries", &out.entries_ppm);
    row.Ratio("delta_nll", &out.delta_nll_ppm);
    row.Ratio("kl", &out.kl_ppm);
    row.Ratio("p99_kl", &out.p99_kl_ppm);
    row.Ratio("top1", &out.top1_ppm);
    row.Measured("seen", &out.seen_ppm);
    row.Measured("unseen", &out.unseen_ppm);
  });
}

void Read(const Json& json, Status& status, MapValidation* validation) {
  Members members(json, "validation", status);
  members.Text("status", &validation->status);
  ReadTexts(members, "reasons", &validation->reasons);
  members.Int("documents", &validation->documents);
  members.Int("needles", &validation->needles);
  ReadRows(members, "rows", &validation->rows);
  ReadRows(members, "front", &validation->front);
}

template <typename Part>
void ReadPart(Members& root, const char* key, Part* part) {
  if (const Json* value = root.Take(key)) {
    Read(*value, root.status(), part);
  }
}

// All members, `summary` and `map_hash` aside: they are compared once the map is known to be valid.
void ReadMap(Members& root, HeadMap* map) {
  std::string schema;
  root.Text("schema", &schema);
  if (root.status().ok() && schema != kHeadMapSchema) {
    root.Fail("schema", fmt::format("\"{}\", the schema that this program reads", kHeadMapSchema));
  }
  root.Text("map_hash", &map->hash);
  ReadPart(root, "model", &map->model);
  ReadPart(root, "tokenizer", &map->tokenizer);
  ReadPart(root, "profile", &map->profile);
  ReadLayers(root, map);
  ReadPart(root, "tsp", &map->tsp);
  ReadSpend(root, &map->spend);
  ReadPart(root, "validation", &map->validation);
  ReadTexts(root, "bound", &map->bound);
  root.Take("summary");
}

}  // namespace

StatusOr<HeadMap> ParseHeadMap(const std::string& text) {
  if (text.size() > kMaxHeadMapBytes) {
    return InvalidArgument("head map: got {} bytes, wanted at most {}", text.size(),
                           kMaxHeadMapBytes);
  }
  HEADROOM_RETURN_IF_ERROR(models::CheckStrictJson(text, "head map"));
  if (text.back() != '\n') {
    return InvalidArgument("head map: the text is cut: got no line feed at its end");
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Status status;
  HeadMap map;
  {
    Members root(json, "", status);
    ReadMap(root, &map);
  }
  HEADROOM_RETURN_IF_ERROR(status);
  HEADROOM_RETURN_IF_ERROR(ValidateHeadMap(map));
  if (json["summary"] != SummaryJson(map)) {
    return InvalidArgument("head map: summary: got other types than the heads have");
  }
  const std::string hash = WriteHashed(map).hash;
  if (map.hash != hash) {
    return InvalidArgument("head map: map_hash: got {}, wanted {}: the file was changed",
                           Printable(map.hash), hash);
  }
  return map;
}

}  // namespace headroom::engine
