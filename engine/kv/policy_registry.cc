#include <algorithm>

#include "engine/kv/policies/policies.h"
#include "engine/kv/policy.h"

namespace headroom::engine {

KvPolicyRegistry::KvPolicyRegistry() {
  Add(MakeFullPolicy());
  Add(MakeStreamingPolicy());
  Add(MakeH2oPolicy());
  Add(MakeScissorhandsPolicy());
  Add(MakeSnapKvPolicy());
  Add(MakeAdaKvPolicy());
  Add(MakePyramidInferPolicy());
  Add(MakeGemFilterPolicy());
  Add(MakeFastKvPolicy());
  Add(MakeFastGenPolicy());
  Add(MakeRandomPolicy());
}

const KvPolicy* KvPolicyRegistry::Find(const std::string& name) const {
  for (const std::unique_ptr<KvPolicy>& policy : policies_) {
    if (policy->name() == name) {
      return policy.get();
    }
  }
  return nullptr;
}

std::vector<std::string> KvPolicyRegistry::Names() const {
  std::vector<std::string> names;
  for (const std::unique_ptr<KvPolicy>& policy : policies_) {
    names.push_back(policy->name());
  }
  return names;
}

void KvPolicyRegistry::Add(std::unique_ptr<KvPolicy> policy) {
  const auto same = std::find_if(policies_.begin(), policies_.end(), [&](const auto& other) {
    return other->name() == policy->name();
  });
  if (same != policies_.end()) {
    *same = std::move(policy);
  } else {
    policies_.push_back(std::move(policy));
  }
}

}  // namespace headroom::engine
