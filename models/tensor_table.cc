#include "models/tensor_table.h"

#include <string_view>
#include <unordered_map>

#include "models/file_error.h"

namespace headroom::models {
namespace {

// Collects names and prints the first few of each kind.
class FaultList {
 public:
  explicit FaultList(const char* kind) : kind_(kind) {}

  void Add(const std::string& fault) {
    if (++count_ > kShown) {
      return;
    }
    text_ += text_.empty() ? "" : ", ";
    text_ += fault;
  }
  bool empty() const { return count_ == 0; }
  std::string Text() const {
    const std::string more = count_ > kShown ? fmt::format(" and {} more", count_ - kShown) : "";
    return fmt::format("{} {}: {}{}", count_, kind_, text_, more);
  }

 private:
  static constexpr int kShown = 8;
  const char* kind_;
  int count_ = 0;
  std::string text_;
};

std::vector<int64_t> WantedShape(const TensorRule& rule) {
  if (rule.rows == 0) {
    return {rule.cols};
  }
  return {rule.rows, rule.cols};
}

// What is wrong with the tensor, or nothing.
std::string Misfit(const TensorRule& rule, const NamedTensor& tensor) {
  if (tensor.shape != WantedShape(rule)) {
    return fmt::format("\"{}\" at offset {} is {}, wanted {}", rule.name, tensor.file_offset,
                       ShapeText(tensor.shape), ShapeText(WantedShape(rule)));
  }
  if (rule.rows == 0 && IsQuantized(tensor.view.dtype)) {
    return fmt::format("\"{}\" at offset {} is {}, wanted f32, f16 or bf16", rule.name,
                       tensor.file_offset, GetDTypeInfo(tensor.view.dtype).name);
  }
  return "";
}

}  // namespace

Status AssignTensors(const std::vector<TensorRule>& rules, const std::vector<NamedTensor>& tensors,
                     const std::string& path) {
  std::unordered_map<std::string_view, const TensorRule*> by_name;
  for (const TensorRule& rule : rules) {
    by_name.emplace(rule.name, &rule);
  }
  FaultList extra("not known to the architecture");
  FaultList misshaped("misshaped");
  FaultList missing("missing");
  std::unordered_map<std::string_view, const NamedTensor*> found;
  for (const NamedTensor& tensor : tensors) {
    const auto rule = by_name.find(tensor.name);
    if (rule == by_name.end()) {
      extra.Add(fmt::format("\"{}\"", Printable(tensor.name)));
      continue;
    }
    found.emplace(tensor.name, &tensor);
    if (rule->second->target == nullptr) {
      continue;
    }
    if (const std::string misfit = Misfit(*rule->second, tensor); !misfit.empty()) {
      misshaped.Add(misfit);
      continue;
    }
    *rule->second->target = tensor.view;
  }
  for (const TensorRule& rule : rules) {
    if (rule.required && !found.contains(rule.name)) {
      missing.Add(fmt::format("\"{}\"", rule.name));
    }
  }
  std::string faults;
  for (const FaultList* list : {&missing, &extra, &misshaped}) {
    if (!list->empty()) {
      faults += faults.empty() ? "" : "; ";
      faults += list->Text();
    }
  }
  if (!faults.empty()) {
    return InvalidArgument("{}: tensors do not fit the architecture: {}", path, faults);
  }
  return OkStatus();
}

}  // namespace headroom::models
