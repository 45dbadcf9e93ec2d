// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace remat::detail {

// Carries bytes between memory and another place, beside the kernels. Requests are served as if one
// after the other, in the order in which they are made: a read of what was written before gives
// what was written. One thread uses it.
//
//   time      ─────────────────────────────────────────────────────────────────▶
//   kernels   | conv1 | relu1 | conv2 |     …      | conv2' | relu1' |
//   channel           [ write a1 ]                 [ read a1 ]
//             write() ┘          └ done()    read() ┘         └ wait()
//   a1        in memory until here ┘                ┘ and again from here on
//
class Channel {
 public:
  // Of a request; they count up.
  using Ticket = int64_t;

  // Requests that are under way are ended, others dropped: afterwards no memory is touched.
  virtual ~Channel() = default;

  // So many bytes, from offset 0 on, have room from now on. Throws Error if they have not; what
  // there was before stays.
  virtual void reserve(int64_t bytes) = 0;

  // Begin. The memory must not change (write) or be touched (read) until wait(ticket) has returned
  // or thrown, or done(ticket) is true. Address, offset and bytes are multiples of
  // alignment_bytes(). Room that was not reserved is taken as it is needed.
  virtual Ticket write(int64_t offset, const void* from, int64_t bytes) = 0;
  virtual Ticket read(int64_t offset, void* to, int64_t bytes) = 0;

  // Whether this request and all before it have ended, well or not. Does not wait.
  virtual bool done(Ticket ticket) = 0;
  // Throws Error if the request failed, every time, until drain(). The others are served all the
  // same, but reading what could not be written fails as well, until it is written again.
  virtual void wait(Ticket ticket) = 0;
  // Waits for all, and forgets their failures: for a step that is undone.
  virtual void drain() noexcept = 0;

  virtual int64_t alignment_bytes() const = 0;
  // For reports: "a file in '/var/tmp', direct, io_uring".
  virtual std::string description() const = 0;
};

}  // namespace remat::detail
