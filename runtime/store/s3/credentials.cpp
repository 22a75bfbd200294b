// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/credentials.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::s3 {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr std::chrono::minutes kMargin(5);
constexpr std::chrono::seconds kLongestPause(10);  // between two questions to a source that fails

/// When to ask again for what ends at `end`: five minutes before, at 80 % of its life, whichever is
/// first; where it lives for minutes only, not before half of it.
WallTime time_to_ask(WallTime now, WallTime end) {
  const milliseconds life = std::max(milliseconds(0), duration_cast<milliseconds>(end - now));
  const milliseconds before = std::min(life - kMargin, life * 4 / 5);
  return now + std::max(before, life / 2);
}

}  // namespace

CredentialCache::CredentialCache(std::unique_ptr<CredentialSource> source, Now now)
    : source_(std::move(source)), now_(std::move(now)) {}

bool CredentialCache::due(WallTime now) const { return !held_ || (held_->expires && now >= next_); }

void CredentialCache::fetch(WallTime now) {
  held_ = source_->fetch();
  if (held_->expires) next_ = time_to_ask(now, *held_->expires);
}

Credentials CredentialCache::get() {
  const std::lock_guard lock(mutex_);
  const WallTime now = now_();
  if (!due(now)) return *held_;
  try {
    fetch(now);
  } catch (const Error&) {
    if (!held_ || !held_->expires || now >= *held_->expires) throw;
    const auto left = duration_cast<milliseconds>(*held_->expires - now);
    next_ = now + std::min<milliseconds>(left / 4, kLongestPause);
  }
  return *held_;
}

bool CredentialCache::renew(const Credentials& used) {
  const std::lock_guard lock(mutex_);
  if (held_ && !(*held_ == used)) return true;  // another thread was here
  try {
    fetch(now_());
  } catch (const Error&) {
    return false;
  }
  return !(*held_ == used);
}

}  // namespace lockstep::s3
