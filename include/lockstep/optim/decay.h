// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::optim {

/// Biases, norms and position embeddings keep their size; the token embedding decays.
inline constexpr const char* kDefaultNoDecay = "*.bias,*.ln_?.weight,*.wpe.weight";

/// Whether all of `name` matches `pattern`: `*` is any text (dots too), `?` any one character.
bool matches_glob(std::string_view pattern, std::string_view name) noexcept;

/// Which parameters weight decay leaves alone.
class NoDecay {
 public:
  /// `patterns`: globs separated by commas, blanks around them ignored; empty: everything decays.
  explicit NoDecay(std::string_view patterns);
  bool matches(std::string_view name) const noexcept;

 private:
  std::vector<std::string> patterns_;
};

}  // namespace lockstep::optim
