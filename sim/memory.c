/* sim/memory.c - reads the kernel's own figures. */
#include "sim/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1024 };

/* The number behind a key that starts a line ("" = the first line is the number alone). false when
 * there is no such file, line or number, as where a limit says "max". */
static bool read_number(const char *path, const char *key, uint64_t *value)
{
    char line[LINE_MAX_BYTES];
    bool found = false;
    FILE *file = fopen(path, "re");

    if (file == NULL) return false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *digits = line + strlen(key);
        while (*digits == ' ') digits++;
        char *end = NULL;
        *value = strtoull(digits, &end, 10);
        found = end != digits;
        if (key[0] == '\0') break;
    }
    (void)fclose(file);
    return found;
}

/* What one control group still allows. Its file cache that nobody uses counts as free. */
static uint64_t group_free_bytes(const char *group)
{
    static const char *const names[3] = {"memory.max", "memory.current", "memory.stat"};
    static const char *const keys[3] = {"", "", "inactive_file "};
    uint64_t value[3] = {0};
    char path[LINE_MAX_BYTES + 64];

    for (int i = 0; i < 3; i++) {
        const int length = snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group, names[i]);
        if (length < 0 || (size_t)length >= sizeof path) return UINT64_MAX;
        if (!read_number(path, keys[i], &value[i])) return UINT64_MAX;
    }
    const uint64_t held = value[1] > value[2] ? value[1] - value[2] : 0;
    return value[0] > held ? value[0] - held : 0;
}

/* The path of this process's group of version 2; "" when there is none. */
static void own_group(char group[LINE_MAX_BYTES])
{
    FILE *file = fopen("/proc/self/cgroup", "re");

    char line[LINE_MAX_BYTES];

    group[0] = '\0';
    if (file == NULL) return;
    while (group[0] == '\0' && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "0::", 3) == 0) snprintf(group, LINE_MAX_BYTES, "%s", line + 3);
    (void)fclose(file);
    group[strcspn(group, "\n")] = '\0';
}

uint64_t sim_memory_free_bytes(void)
{
    uint64_t free_bytes = UINT64_MAX, kib = 0;
    char group[LINE_MAX_BYTES];

    if (read_number("/proc/meminfo", "MemAvailable:", &kib) && kib <= UINT64_MAX / 1024)
        free_bytes = kib * 1024;
    own_group(group);
    for (;;) { /* A parent's limit holds for its children, too. */
        const uint64_t allowed_bytes = group_free_bytes(group);
        if (allowed_bytes < free_bytes) free_bytes = allowed_bytes;
        char *slash = strrchr(group, '/');
        if (slash == NULL) return free_bytes;
        *slash = '\0';
    }
}

int sim_memory_check(const char *what, uint64_t need_bytes, uint64_t free_bytes, char *err,
                     size_t err_len)
{
    assert(what != NULL && err != NULL);
    if (need_bytes <= free_bytes) return 0;
    snprintf(err, err_len,
             "%.256s: it needs %" PRIu64 " bytes, %" PRIu64 " are free: %" PRIu64 " bytes missing",
             what, need_bytes, free_bytes, need_bytes - free_bytes);
    return -1;
}
