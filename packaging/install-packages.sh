#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what packaging/debian.txt lists and this system lacks. On Debian by apt-get, with sudo where we are not
# root; elsewhere it says what to install. Does nothing, quickly, when everything is there.
#
# usage: install-packages.sh [--tests]
# What only tests and benchmarks need, its purpose says so first, is left out unless asked for.
set -eu
list=${PACKAGE_LIST:-$(dirname "$0")/debian.txt}

case ${1:-} in
'') left_out='| *tests' ;;
--tests) left_out='^$' ;;
*)
	echo "usage: $0 [--tests], not \"$1\"" >&2
	exit 2
	;;
esac

# package|probe|purpose, without comments and blanks
entries() { sed -e 's/#.*//' "$list" | grep -v "$left_out" | sed -e '/^[[:space:]]*$/d' -e 's/[[:space:]]*|[[:space:]]*/|/g'; }

found() {
	case $1 in
	cmd:*) PATH=$PATH:/usr/sbin:/sbin command -v "${1#cmd:}" >/dev/null ;;
	pc:*) pkg-config --exists "${1#pc:}" 2>/dev/null ;;
	file:*) test -e "${1#file:}" ;;
	esac
}

# another file, for the tests
os_release=${OS_RELEASE:-/etc/os-release}
id=
# shellcheck disable=SC1090
[ -r "$os_release" ] && id=$(. "$os_release" && echo "${ID:-}")

# Those whose headers the core is compiled against, each with its newest version whenever something is installed: what
# an update breaks shall break here first.
headers() { entries | cut -d'|' -f1 | grep -- '-dev$'; }

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

# The lock is waited for: whoever holds it may be another checkout's make.
apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >/dev/null; }

update() {
	# apt-get update has a lock of its own, which DPkg::Lock::Timeout does not wait for.
	for _ in $(seq 120); do
		said=$(apt_get update 2>&1) && return
		case $said in
		*"Could not get lock"*) sleep 1 ;;
		*) break ;;
		esac
	done
	echo "$said" >&2
	return 1
}

if [ "$id" = debian ]; then
	wanted=$(entries | cut -d'|' -f1)
	# "ii" or "hi": installed, perhaps held
	# shellcheck disable=SC2086
	installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^.i. *//p') || true
	missing=
	for package in $wanted; do
		printf '%s\n' "$installed" | grep -qx "$package" || missing="$missing $package"
	done
	[ -z "$missing" ] && exit 0
	if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
		echo "not root, and there is no sudo. As root: apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	echo "installing:$missing"
	update
	# shellcheck disable=SC2046,SC2086
	apt_get install --no-install-recommends $missing $(headers)
	exit 0
fi

IFS='|'
lacks=$(entries | while read -r package probe purpose; do
	found "$probe" || echo "  ${probe#*:} (Debian's package $package): $purpose"
done)
if [ -n "$lacks" ]; then
	echo "This is not Debian, so what is missing is yours to install:" >&2
	echo "$lacks" >&2
	exit 1
fi
