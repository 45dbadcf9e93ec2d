// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace remat::detail {

// An unlinked file that takes pages out of memory and is mapped in their place: the same addresses
// keep the same contents, and whoever touches them gets them back from the file. Nothing is left
// behind, however the process ends.
//
//   memory    | a | b | c |          put(b)          | a | . | c |     load(b)      | a | b | c |
//   file                          ─────────▶             | b |        ─────────▶        | . |
//
// Written and read directly where the file system can do that; elsewhere what the page cache took is
// dropped afterwards, so that it is not the page cache that pays.
class SpillFile {
 public:
  // Throws Error if no file can be made in the folder. Not `direct`: through the page cache, as where the file
  // system knows no other way.
  explicit SpillFile(std::string folder, bool direct = true);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // A place in the file for so many bytes of whole pages.
  int64_t new_place(int64_t bytes) { return std::exchange(end_, end_ + bytes); }
  // Writes pages of private memory to their place and maps the file instead of them. Throws Error, with the
  // pages as they were, if the disk is full or fails.
  void put(int64_t place, char* pages, int64_t bytes);
  // Makes them private memory again, with the contents they have now. Throws Error, with the pages as they were, if
  // they cannot be read.
  void load(int64_t place, char* pages, int64_t bytes);
  // Whether all of a place can be read; `pages` are mapped to it anew.
  bool can_be_read(int64_t place, char* pages, int64_t bytes);
  // The pages at this place are needed no more. They are no longer mapped.
  void forget(int64_t place, int64_t bytes);

 private:
  int64_t free_bytes() const;
  void map(int64_t place, char* pages, int64_t bytes);
  void write(const char* from, int64_t place, int64_t bytes);
  void read(char* to, int64_t place, int64_t bytes);
  bool tried_without_direct();
  void check_length() const;

  std::string folder_;
  int file_ = -1;
  bool direct_ = false;
  int64_t end_ = 0;  // places are never used twice: what is forgotten is a hole in the file
  int64_t written_end_ = 0;
};

// What is known of a folder.
struct SpillRoom {
  int64_t free_bytes = 0;
  bool is_memory = false;  // tmpfs: putting pages there gains nothing
};
// None if it cannot be looked at.
std::optional<SpillRoom> spill_room(const std::string& folder);

// Where the file goes if nobody says: $TMPDIR, or a folder for temporary files that is on a disk.
std::string default_spill_folder();

}  // namespace remat::detail
