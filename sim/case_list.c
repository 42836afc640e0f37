/* sim/case_list.c - which cases a folder holds: the names before ".rankR.safetensors". */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "sim/capture.h"

enum { FOLDER_DEPTH_MAX = 16 };

/* "NAME.rank12.safetensors" -> length of NAME, or 0 when the name is something else. */
static size_t case_name_length(const char *file)
{
    static const char suffix[] = ".safetensors", mark[] = ".rank";
    const size_t length = strlen(file);
    size_t at = length;

    if (length <= strlen(suffix) || strcmp(file + length - strlen(suffix), suffix) != 0) return 0;
    at = length - strlen(suffix);
    const size_t digits_end = at;
    while (at > 0 && file[at - 1] >= '0' && file[at - 1] <= '9') at--;
    const size_t digits = digits_end - at;
    if (digits == 0 || digits > 4 || (digits > 1 && file[at] == '0')) return 0;
    if (at <= strlen(mark) || memcmp(file + at - strlen(mark), mark, strlen(mark)) != 0) return 0;
    return at - strlen(mark);
}

static int add_place(struct sim_case_list *list, const char *folder, const char *below,
                     const char *file, size_t name_length, char *err, size_t err_len)
{
    struct sim_case_place place;

    assert(name_length > 0 && name_length <= strlen(file));
    if (name_length >= sizeof(place.name) || strlen(folder) >= sizeof(place.folder) ||
        strlen(below) + 1 + name_length >= sizeof(place.label)) {
        snprintf(err, err_len, "%.200s: a name longer than %d characters", folder,
                 SIM_CASE_NAME_MAX - 1);
        return -1;
    }
    memset(&place, 0, sizeof(place));
    memcpy(place.folder, folder, strlen(folder));
    memcpy(place.name, file, name_length);
    const size_t below_length = strlen(below);
    if (below_length > 0) {
        memcpy(place.label, below, below_length);
        place.label[below_length] = '/';
    }
    assert(below_length + 1 + name_length < sizeof(place.label));
    memcpy(place.label + below_length + (below_length > 0), file, name_length);
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        struct sim_case_place *grown =
            (struct sim_case_place *)realloc(list->places, capacity * sizeof(*grown));

        if (grown == NULL) {
            snprintf(err, err_len, "%.200s: out of memory", folder);
            return -1;
        }
        list->places = grown;
        list->capacity = capacity;
    }
    assert(list->count < list->capacity);
    list->places[list->count++] = place;
    return 0;
}

/* A folder on the way down; a link back to one of them would go round and round. */
struct above {
    dev_t device;
    ino_t inode;
    const struct above *next;
};

static bool is_above(const struct above *above, const struct stat *info)
{
    for (; above != NULL; above = above->next)
        if (above->device == info->st_dev && above->inode == info->st_ino) return true;
    return false;
}

static int scan(struct sim_case_list *list, const char *folder, const char *below, int depth,
                const struct above *above, char *err, size_t err_len)
{
    struct above here = {.next = above};
    struct stat own;
    assert(depth >= 0 && depth <= FOLDER_DEPTH_MAX);
    DIR *dir = opendir(folder);
    int status = 0;

    if (dir == NULL) {
        snprintf(err, err_len, "%.400s: %s", folder, strerror(errno));
        return -1;
    }
    if (fstat(dirfd(dir), &own) == 0) here.device = own.st_dev, here.inode = own.st_ino;
    for (struct dirent *entry = readdir(dir); entry != NULL && status == 0; entry = readdir(dir)) {
        const size_t name_length = case_name_length(entry->d_name);
        char path[SIM_PATH_MAX], label[SIM_CASE_NAME_MAX];
        struct stat info;

        if (name_length > 0) {
            status = add_place(list, folder, below, entry->d_name, name_length, err, err_len);
            continue;
        }
        if (depth <= 0 || entry->d_name[0] == '.') continue;
        const int path_length = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        const int label_length = snprintf(label, sizeof(label), "%s%s%s", below,
                                          below[0] != '\0' ? "/" : "", entry->d_name);
        if (path_length >= (int)sizeof(path) || label_length >= (int)sizeof(label)) continue;
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode) && !is_above(&here, &info))
            status = scan(list, path, label, depth - 1, &here, err, err_len);
    }
    closedir(dir);
    return status;
}

static int by_label(const void *a, const void *b)
{
    return strcmp(((const struct sim_case_place *)a)->label,
                  ((const struct sim_case_place *)b)->label);
}

int sim_case_list(const char *folder, bool subfolders, struct sim_case_list *list, char *err,
                  size_t err_len)
{
    size_t kept = 0;

    assert(folder != NULL);
    memset(list, 0, sizeof(*list));
    if (scan(list, folder, "", subfolders ? FOLDER_DEPTH_MAX : 0, NULL, err, err_len) != 0) {
        sim_case_list_free(list);
        return -1;
    }
    if (list->count > 0) qsort(list->places, list->count, sizeof(*list->places), by_label);
    for (size_t i = 0; i < list->count; i++) /* One entry per rank file became one per case. */
        if (i == 0 || strcmp(list->places[i].label, list->places[kept - 1].label) != 0)
            list->places[kept++] = list->places[i];
    assert(kept <= list->count);
    list->count = kept;
    return 0;
}

void sim_case_list_free(struct sim_case_list *list)
{
    free(list->places);
    memset(list, 0, sizeof(*list));
}
