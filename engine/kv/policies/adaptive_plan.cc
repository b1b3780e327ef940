#include "engine/kv/policies/adaptive_plan.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "engine/kv/budget.h"

namespace headroom::engine {
namespace {

// Ranks are compared on this grid first; exactly where the grid cannot tell.
constexpr int64_t kGrid = int64_t{1} << 20;

// Items at ranks up to grid / kGrid.
int64_t CountUpTo(const Claim& claim, int64_t grid) {
  if (grid >= (claim.limit * kGrid + claim.weight - 1) / claim.weight) {
    return claim.limit;
  }
  return claim.weight * grid / kGrid;
}

int64_t CountUpTo(const std::vector<Claim>& claims, int64_t grid) {
  return std::accumulate(
      claims.begin(), claims.end(), int64_t{0},
      [grid](int64_t sum, const Claim& claim) { return sum + CountUpTo(claim, grid); });
}

// The claim whose next item comes first.
size_t FirstNext(const std::vector<Claim>& claims, const std::vector<int64_t>& counts) {
  size_t best = claims.size();
  for (size_t i = 0; i < claims.size(); ++i) {
    if (counts[i] == claims[i].limit) {
      continue;
    }
    if (best == claims.size() ||
        (counts[i] + 1) * claims[best].weight < (counts[best] + 1) * claims[i].weight) {
      best = i;
    }
  }
  HEADROOM_CHECK(best < claims.size());
  return best;
}

// A pool of fewer times their sum gives nothing to leads; of what is beyond, one in so many
// entries.
constexpr int64_t kLeadPart = 3;

// Sums over the heads of one split; rooms are what leads leave.
struct Totals {
  int64_t lead = 0;
  int64_t room = 0;
  int64_t dense_room = 0;
  int64_t elastic_room = 0;
  int64_t quota = 0;
};

Totals TotalsOf(const std::vector<AdaptiveHead>& heads) {
  Totals totals;
  for (const AdaptiveHead& head : heads) {
    const int64_t room = head.room - head.lead;
    HEADROOM_CHECK(head.floor <= room && head.quota <= room && head.content <= head.room);
    totals.lead += head.lead;
    totals.room += room;
    totals.elastic_room += head.elastic ? room : 0;
    totals.dense_room += head.elastic && head.dense ? room : 0;
    totals.quota += head.elastic ? 0 : head.quota;
  }
  return totals;
}

// Entries of leads in so large a pool. Neither they nor the rest shrink as it grows.
int64_t LeadOf(const Totals& totals, int64_t pool) {
  const int64_t beyond = std::max<int64_t>(0, pool - kLeadPart * totals.lead) / kLeadPart;
  return std::clamp<int64_t>(std::max(beyond, pool - totals.room), 0, totals.lead);
}

// A pool between leads, quotas, elastic heads and what neither can hold. None shrinks as it grows.
struct Parts {
  int64_t leads = 0;
  int64_t quotas = 0;
  int64_t elastic = 0;
  int64_t spare = 0;  // beyond all quotas, to fixed heads
};

Parts PartsOf(const Totals& totals, int64_t wanted_pool, int64_t local_share_ppm) {
  const int64_t all = std::clamp<int64_t>(wanted_pool, 0, totals.room + totals.lead);
  Parts parts;
  parts.leads = LeadOf(totals, all);
  const int64_t pool = all - parts.leads;
  parts.quotas = std::max(ScalePpm(local_share_ppm, pool), pool - totals.elastic_room);
  parts.quotas = std::min(parts.quotas, totals.quota);
  parts.spare = std::max<int64_t>(0, pool - totals.elastic_room - totals.quota);
  parts.elastic = pool - parts.quotas - parts.spare;
  return parts;
}

// The dense share of `elastic` entries.
int64_t DenseShare(const AdaptiveInput& input, const Totals& totals, int64_t elastic) {
  int64_t last_elastic = 0;
  int64_t last_dense = 0;
  for (size_t i = 0; i < input.points.size(); ++i) {
    const AdaptivePoint& point = input.points[i];
    HEADROOM_CHECK(i == 0 || point.pool >= input.points[i - 1].pool);
    const int64_t at = PartsOf(totals, point.pool, input.local_share_ppm).elastic;
    const int64_t wanted = ScalePpm(point.dense_share_ppm, at);
    const int64_t dense =
        i == 0 ? wanted : std::clamp(wanted, last_dense, last_dense + at - last_elastic);
    if (elastic <= at) {
      return i == 0 ? ScalePpm(point.dense_share_ppm, elastic)
                    : dense - ((at - elastic) * (dense - last_dense) + at - last_elastic - 1) /
                                  std::max<int64_t>(1, at - last_elastic);
    }
    last_elastic = at;
    last_dense = dense;
  }
  const int64_t wanted = ScalePpm(input.points.back().dense_share_ppm, elastic);
  return std::clamp(wanted, last_dense, last_dense + elastic - last_elastic);
}

// Entries of the dense heads where the pool is so large.
int64_t DensePart(const AdaptiveInput& input, const Totals& totals, int64_t pool) {
  const Parts parts = PartsOf(totals, pool, input.local_share_ppm);
  return std::min(DenseShare(input, totals, parts.elastic), totals.dense_room);
}

// Dense heads in their order, the last one as far as `part` goes: those that `content_part` reaches
// get their content, as far as leads left room for it, then all are made whole. How far that part
// reaches does not depend on leads, so that it is the same at every pool.
void FillDense(const std::vector<AdaptiveHead>& heads, int64_t content_part, int64_t part,
               AdaptiveSplit& split) {
  std::vector<size_t> order;
  for (size_t i = 0; i < heads.size(); ++i) {
    if (heads[i].elastic && heads[i].dense) {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&heads](size_t a, size_t b) {
    return heads[a].fill_order < heads[b].fill_order;
  });
  int64_t left = content_part;
  for (const size_t i : order) {
    split.content_first[i] = left > 0 ? 1 : 0;
    const int64_t most = std::min(left, heads[i].content);
    const int64_t more = std::min({part, most, heads[i].room - split.own[i]});
    split.own[i] += more;
    left -= most;
    part -= more;
  }
  for (const size_t i : order) {
    const int64_t more = std::min(part, heads[i].room - split.own[i]);
    split.own[i] += more;
    part -= more;
  }
  HEADROOM_CHECK(part == 0);
}

// Elastic heads in turn up to their floors beside leads, as far as `part` goes; what is left of it.
int64_t FillFloors(const std::vector<AdaptiveHead>& heads, int64_t part,
                   const std::vector<int64_t>& lead, std::vector<int64_t>& own) {
  std::vector<Claim> floors;
  int64_t wanted = 0;
  for (size_t i = 0; i < heads.size(); ++i) {
    const int64_t missing =
        heads[i].elastic ? std::max<int64_t>(0, heads[i].floor + lead[i] - own[i]) : 0;
    floors.push_back({.weight = 1, .limit = missing});
    wanted += missing;
  }
  const int64_t given = std::min(part, wanted);
  const std::vector<int64_t> counts = TakeInOrder(floors, given);
  for (size_t i = 0; i < heads.size(); ++i) {
    own[i] += counts[i];
  }
  return part - given;
}

// Weights do not depend on the pool, so that no layer loses when a dense head of it is filled: the
// entries that such a head has won before are among its own then, and free for the others.
std::vector<int64_t> SplitContested(const AdaptiveInput& input, const std::vector<int64_t>& own,
                                    int64_t part) {
  const std::vector<AdaptiveHead>& heads = input.heads;
  std::vector<Claim> layers(heads.empty() ? 0 : static_cast<size_t>(heads.back().layer) + 1,
                            {.weight = 0, .limit = 0});
  for (size_t i = 0; i < heads.size(); ++i) {
    if (heads[i].elastic) {
      Claim& layer = layers[static_cast<size_t>(heads[i].layer)];
      layer.weight += input.layers_by_demand ? std::max<int64_t>(1, heads[i].demand) : 1;
      layer.limit += heads[i].room - own[i];
    }
  }
  for (Claim& layer : layers) {
    layer.weight = std::max<int64_t>(1, layer.weight);
  }
  return TakeInOrder(layers, part);
}

}  // namespace

std::vector<int64_t> TakeInOrder(const std::vector<Claim>& claims, int64_t total) {
  int64_t low = 0;  // at most `total` items stand up to here
  int64_t high = 1;
  for (const Claim& claim : claims) {
    high = std::max(high, (claim.limit * kGrid + claim.weight - 1) / claim.weight + 1);
  }
  HEADROOM_CHECK(total >= 0 && total <= CountUpTo(claims, high));
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (CountUpTo(claims, middle) <= total ? low : high) = middle;
  }
  std::vector<int64_t> counts;
  for (const Claim& claim : claims) {
    counts.push_back(CountUpTo(claim, low));
    total -= counts.back();
  }
  for (; total > 0; --total) {
    ++counts[FirstNext(claims, counts)];
  }
  return counts;
}

AdaptiveSplit SplitPool(const AdaptiveInput& input) {
  HEADROOM_CHECK(!input.points.empty());
  const Totals totals = TotalsOf(input.heads);
  const Parts parts = PartsOf(totals, input.pool, input.local_share_ppm);
  const int64_t dense = DensePart(input, totals, input.pool);

  std::vector<Claim> leads;
  std::vector<Claim> quotas;
  std::vector<Claim> spare;
  AdaptiveSplit split;
  for (const AdaptiveHead& head : input.heads) {
    const int64_t quota = head.elastic ? 0 : head.quota;
    quotas.push_back({.weight = std::max<int64_t>(1, quota), .limit = quota});
    spare.push_back({.weight = 1, .limit = head.elastic ? 0 : head.room - head.lead - quota});
    leads.push_back({.weight = 1, .limit = head.lead});
  }
  split.lead = TakeInOrder(leads, parts.leads);
  split.quota = TakeInOrder(quotas, parts.quotas);
  split.own = TakeInOrder(spare, parts.spare);
  for (size_t i = 0; i < split.own.size(); ++i) {
    split.own[i] += split.lead[i];
  }
  split.content_first.assign(input.heads.size(), 0);
  FillDense(input.heads, DensePart(input, totals, input.content_pool), dense, split);
  const int64_t rest = FillFloors(input.heads, parts.elastic - dense, split.lead, split.own);
  split.contested = SplitContested(input, split.own, rest);
  split.overran = input.pool < 0;
  return split;
}

}  // namespace headroom::engine
