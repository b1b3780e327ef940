// Where the process is in its life; read by every transport, written by the serve command.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::server {

enum class LifecycleState : uint8_t { kLoading, kReady, kDraining };

class Lifecycle {
 public:
  LifecycleState state() const { return state_.load(std::memory_order_acquire); }
  void Set(LifecycleState state) { state_.store(state, std::memory_order_release); }

 private:
  std::atomic<LifecycleState> state_{LifecycleState::kLoading};
};

}  // namespace headroom::server
