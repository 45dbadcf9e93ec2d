// SPDX-License-Identifier: Apache-2.0
// Step: the channel that values are offloaded to, and doing without what has failed.
#include "remat/core/error.h"
#include "remat/libtorch/channel_model.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/step_implementation.h"

namespace remat {

using detail::concat;
using detail::Variant;

void Step::Implementation::open_channel() {
  if (!options_.offload_folder.empty()) {
    options_.execute.channel = detail::cpu_device().open_channel(options_.offload_folder);
  }
  if (options_.execute.channel != nullptr) {
    channel_text_ = options_.execute.channel->description();
  }
}

// Measured when the first plan is made.
std::optional<ChannelModel> Step::Implementation::channel_model() {
  constexpr int64_t kScratchBytes = 32 * MiB;
  if (options_.execute.channel == nullptr || channel_model_) {
    return channel_model_;
  }
  try {
    channel_model_ = detail::model_of(*options_.execute.channel, kScratchBytes);
  } catch (const Error& error) {
    say(concat("nothing is offloaded: ", error.what()));
    lose_channel();
  }
  return channel_model_;
}

void Step::Implementation::lose_channel() {
  options_.execute.channel.reset();
  channel_model_.reset();
  channel_text_.clear();
}

void Step::Implementation::do_without(Variant& variant, const MoveFailed& failed) {
  if (failed.packed_form) {
    variant.do_without(failed);
  } else {
    channel_failed(failed);
  }
  say(detail::notice_of(failed));
}

// No course goes on with it, known or new.
void Step::Implementation::channel_failed(const MoveFailed& failed) {
  for (const auto& each : variants_) {
    each->do_without(failed);
  }
  lose_channel();
}

}  // namespace remat
