/* sim/plugin_load.c - dlopen, one symbol, and the checks of its table. */
#include "sim/plugin_load.h"

#include <assert.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VERSIONS_MAX = 9 };

/* There is no sim_backend_v1: is there another version? */
static void explain_missing(void *library, char *text, size_t text_len)
{
    for (int version = 2; version <= VERSIONS_MAX; version++) {
        char symbol[32];
        snprintf(symbol, sizeof symbol, "sim_backend_v%d", version);
        if (dlsym(library, symbol) == NULL) continue;
        snprintf(text, text_len, "exports %s, this program speaks sim_backend_v%u", symbol,
                 SIM_BACKEND_ABI);
        return;
    }
    snprintf(text, text_len, "no symbol sim_backend_v%u: not a plugin of this program",
             SIM_BACKEND_ABI);
}

/* One field of the table: its name, where it is, and whether it may be left out. */
struct field {
    const char *name;
    size_t offset;
    bool required;
};
#define FIELD(name, required)                                                                      \
    {                                                                                              \
#name, offsetof(struct sim_backend_ops, name), required                                    \
    }
static const struct field FIELDS[] = {
    FIELD(open, true),     FIELD(close, true),   FIELD(dispatch, true),    FIELD(expert, true),
    FIELD(combine, true),  FIELD(begin, false),  FIELD(pack, false),       FIELD(deliver, false),
    FIELD(forward, false), FIELD(unpack, false), FIELD(run_expert, false), FIELD(read, false)};
enum { FIELD_COUNT = sizeof FIELDS / sizeof FIELDS[0] };

static bool reaches(const struct sim_backend_ops *ops, const struct field *field)
{
    return field->offset + sizeof(void *) <= ops->table_bytes;
}

/* Is the field inside the table as it was compiled, and not NULL? */
static bool has_field(const struct sim_backend_ops *ops, const struct field *field)
{
    uintptr_t value = 0;
    if (!reaches(ops, field)) return false;
    memcpy(&value, (const uint8_t *)ops + field->offset, sizeof value);
    return value != 0;
}

bool plugin_check_table(const struct sim_backend_ops *ops, char *text, size_t text_len)
{
    const struct field *offered = NULL, *missing = NULL;

    if (ops == NULL) {
        snprintf(text, text_len, "sim_backend_v1 returned no table");
        return false;
    }
    if (ops->abi != SIM_BACKEND_ABI) {
        snprintf(text, text_len, "table has abi %" PRIu32 ", this program speaks %u", ops->abi,
                 SIM_BACKEND_ABI);
        return false;
    }
    for (int i = 0; i < FIELD_COUNT; i++) {
        const struct field *field = &FIELDS[i];
        if (has_field(ops, field)) {
            if (!field->required) offered = field;
        } else if (!field->required) {
            missing = field;
        } else {
            if (reaches(ops, field))
                snprintf(text, text_len, "required operation `%s` is missing", field->name);
            else
                snprintf(text, text_len,
                         "table of %" PRIu32 " bytes ends before `%s`, which is required",
                         ops->table_bytes, field->name);
            return false;
        }
    }
    if (offered == NULL || missing == NULL) return true;
    snprintf(text, text_len,
             "phase operation `%s` is missing beside `%s`: offer all of them or none",
             missing->name, offered->name);
    return false;
}

bool plugin_offers_phases(const struct sim_backend_ops *ops)
{
    assert(ops != NULL && ops->abi == SIM_BACKEND_ABI);
    return has_field(ops, &FIELDS[FIELD_COUNT - 1]);
}

const struct sim_backend_ops *plugin_load(const char *path, char *text, size_t text_len)
{
    union {
        void *object;
        const struct sim_backend_ops *(*function)(void);
    } symbol; /* dlsym gives an object pointer; POSIX promises that it can be called. */
    const size_t path_bytes = strlen(path);

    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        /* dlopen often begins with the path, and so does whoever prints this. */
        if (strncmp(reason, path, path_bytes) == 0 && reason[path_bytes] == ':')
            reason += path_bytes + 1;
        while (*reason == ' ') reason++;
        snprintf(text, text_len, "%s", reason);
        return NULL;
    }
    symbol.object = dlsym(library, "sim_backend_v1");
    if (symbol.object == NULL) {
        explain_missing(library, text, text_len);
        return NULL;
    }
    const struct sim_backend_ops *ops = symbol.function();
    if (!plugin_check_table(ops, text, text_len)) return NULL;
    snprintf(text, text_len, "%.63s",
             ops->name != NULL && ops->name[0] != '\0' ? ops->name : "a plugin without a name");
    return ops;
}
