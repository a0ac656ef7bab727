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

missing=
if [ "$id" = debian ]; then
	for package in $(entries | cut -d'|' -f1); do
		# "ii" or "hi": installed, perhaps held
		case $(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null) in
		?i*) ;;
		*) missing="$missing $package" ;;
		esac
	done
	[ -z "$missing" ] && exit 0
	echo "installing:$missing"
	sudo=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || {
			echo "not root, and there is no sudo. As root: apt-get install --no-install-recommends$missing" >&2
			exit 1
		}
		sudo=sudo
	fi
	$sudo apt-get -qq update
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $missing >/dev/null
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
