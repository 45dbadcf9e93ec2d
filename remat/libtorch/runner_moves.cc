// SPDX-License-Identifier: Apache-2.0
// Runner: packing, unpacking, and transfers to a channel and back.
#include <string>
#include <utility>

#include "remat/core/error.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/packed_values.h"
#include "remat/libtorch/runner.h"

namespace remat::detail {

// The recording holds the numbers of this step.
void Runner::check_readers() const {
  for (const PreparedCall* each : readers_) {
    if (!compares_as_packed(recording_.tape[each->op_index], *each->move->reader, *each->move->format)) {
      throw MoveFailed(concat("[step] ", recording_.graph.ops[each->op_index].name,
                              " compares with another number than when the step was recorded"),
                       each->move->packed_form);
    }
  }
}

void Runner::wait(std::span<const InstanceId> instances) {
  for (const InstanceId each : instances) {
    Channel::Ticket& ticket = tickets_[index(each)];
    if (ticket == kNoTicket) {
      continue;
    }
    const int64_t start_ns = cpu_device().now_ns();
    try {
      options_.channel->wait(std::exchange(ticket, kNoTicket));
    } catch (const Error& error) {
      throw MoveFailed(error.what(), std::nullopt);
    }
    supply_.counts.waited_ns += cpu_device().now_ns() - start_ns;
  }
}

void Runner::call_move(const PreparedMove& move) {
  supply_.add(move.created_bytes);
  switch (move.kind) {
    case StepKind::pack:
      if (!pack(*move.format, move.from, move.to)) {
        const PackedForm& form = recording_.graph.packed_forms[move.packed_form];
        throw MoveFailed(concat("[step] ", recording_.graph.storage(form.storage).name,
                                " does not have the values by which it is packed (", form.rule, ")"),
                         move.packed_form);
      }
      return;
    case StepKind::unpack: return unpack(*move.format, move.from, move.to);
    case StepKind::offload:
      tickets_[index(move.transferred)] =
          options_.channel->write(move.channel_offset, move.from, move.bytes);
      supply_.counts.offloaded_bytes += move.bytes;
      return;
    case StepKind::prefetch:
      tickets_[index(move.transferred)] =
          options_.channel->read(move.channel_offset, move.to, move.bytes);
      return;
    default: return run_packed_reader(*move.reader, *move.format, move.from, move.other, move.to);
  }
}

}  // namespace remat::detail
