// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "guest_requests.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "guest_console.h"

/* A serial line is slow, and whoever reads this wants the first ones. */
#define MAX_LINES 64

static int printed;

/* Each entry of a folder that is not hidden. */
static void for_each_entry(const char *folder, void (*each)(const char *folder, const char *name))
{
	DIR *entries = opendir(folder);
	struct dirent *entry;

	while (entries && (entry = readdir(entries)))
		if (entry->d_name[0] != '.')
			each(folder, entry->d_name);
	if (entries)
		closedir(entries);
}

/* The lines of a file, each after a label; not those that are `but`. */
static void print_lines(const char *path, const char *label, const char *but)
{
	FILE *file = fopen(path, "re");
	char line[400];

	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, but) != 0 && printed++ < MAX_LINES)
			console("  %s: %s", label, line);
	}
	if (file)
		fclose(file);
}

/* What a hardware queue has: requests with a tag, and those that it could not give to the driver. */
static void print_queue(const char *folder, const char *name)
{
	static const char *const lists[] = {"busy", "dispatch"};
	const char *disk = strrchr(folder, '/') + 1;
	char path[PATH_MAX], label[600];

	if (strncmp(name, "hctx", 4) != 0)
		return;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		snprintf(path, sizeof(path), "%.2000s/%.200s/%s", folder, name, lists[i]);
		snprintf(label, sizeof(label), "%.200s %.200s %s", disk, name, lists[i]);
		print_lines(path, label, "");
	}
}

/* What of our driver's is not a value: a line for each request or bio that waits. */
static const char waiting[] = "waiting";

/* One value of our driver, if it has any: none of them waits for a lock. */
static void print_value(const char *folder, const char *name)
{
	char path[PATH_MAX];

	if (strcmp(name, waiting) == 0)
		return;
	snprintf(path, sizeof(path), "%.2000s/%.200s", folder, name);
	print_lines(path, name, "0");
}

static void print_disk(const char *folder, const char *name)
{
	unsigned long reads = 0, writes = 0;
	char path[PATH_MAX], label[300];
	FILE *file;

	snprintf(path, sizeof(path), "%.2000s/%.200s/inflight", folder, name);
	file = fopen(path, "re");
	if (file && fscanf(file, "%lu %lu", &reads, &writes) == 2 && reads + writes > 0)
		console("%s: %lu reads and %lu writes in flight", name, reads, writes);
	if (file)
		fclose(file);
	snprintf(path, sizeof(path), "/sys/kernel/debug/block/%.200s", name);
	for_each_entry(path, print_queue);
	snprintf(path, sizeof(path), "%.2000s/%.200s/sampleblk/%s", folder, name, waiting);
	snprintf(label, sizeof(label), "%.200s %s", name, waiting);
	print_lines(path, label, "");
	if (reads + writes == 0)
		return;
	snprintf(path, sizeof(path), "%.2000s/%.200s/sampleblk", folder, name);
	for_each_entry(path, print_value);
}

void print_requests(void)
{
	printed = 0;
	console("Requests in flight:");
	if (access("/sys/kernel/debug/block", R_OK) != 0)
		console("  (each is not known: CONFIG_BLK_DEBUG_FS is not set, or debugfs is not mounted)");
	for_each_entry("/sys/block", print_disk);
	if (printed > MAX_LINES)
		console("  (and %d lines more)", printed - MAX_LINES);
}
