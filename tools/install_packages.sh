#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing. Says what to do when it may not.
#   tools/install_packages.sh PACKAGE...
set -eu

missing=""
for package in "$@"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "remat needs these packages (Debian names):$missing" >&2
  echo "This system has no apt-get: install them its own way, then run make with PACKAGES=" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if sudo -n true 2>/dev/null; then
    as_root="sudo -n"
  else
    echo "remat needs these packages:$missing" >&2
    echo "Run: sudo apt-get install$missing" >&2
    exit 1
  fi
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# The package lists may be absent or old on a fresh machine.
# shellcheck disable=SC2086
$as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 ||
  { $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null; }
