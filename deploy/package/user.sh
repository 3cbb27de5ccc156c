#!/bin/sh
# Makes the user of the service before files are unpacked that belong to it. Runs before each
# installation and each upgrade. A user that exists only gets the group that reads the configuration.
set -e

if ! getent group loquat >/dev/null; then
  groupadd --system loquat
fi
if ! getent passwd loquat >/dev/null; then
  useradd --system --gid loquat --home-dir /var/lib/loquat --no-create-home --shell /usr/sbin/nologin \
    --comment "Loquat, chat sessions" loquat
fi
if ! id -nG loquat | tr ' ' '\n' | grep -qx loquat; then
  usermod --append --groups loquat loquat
fi
