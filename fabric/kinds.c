/* fabric/kinds.c - words in comments. */
#include "fabric/kinds.h"
#include <assert.h>
#include <string.h>
#include "fabric/units.h"

static const struct {
    const char *word;
    enum fabric_kind kind;
} WORDS[] = {{"datasheet", FABRIC_KIND_DATASHEET}, {"published", FABRIC_KIND_PUBLISHED},
             {"measured", FABRIC_KIND_MEASURED},   {"read off", FABRIC_KIND_MEASURED},
             {"fitted", FABRIC_KIND_FITTED},       {"assumed", FABRIC_KIND_ASSUMED}};

const char *fabric_kind_name(enum fabric_kind kind)
{
    static const char *const names[FABRIC_KINDS] = {"",         "datasheet", "published",
                                                    "measured", "fitted",    "assumed"};
    assert((unsigned)kind < FABRIC_KINDS);
    return names[kind];
}

enum fabric_kind fabric_kind_read(const char *comment)
{
    enum fabric_kind kind = FABRIC_KIND_UNSAID;
    const char *first = NULL;

    assert(comment);
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        const char *at = strstr(comment, WORDS[i].word);
        if (!at || (first && at > first)) continue;
        first = at;
        kind = WORDS[i].kind;
    }
    return kind;
}

const struct fabric_yaml_node *fabric_kind_word(const struct fabric_yaml *yaml, const char *section,
                                                const char *field)
{
    const struct fabric_yaml_node *parent = yaml->root;
    struct fabric_unit unit;

    assert(section && field);
    if (section[0] != '\0') parent = fabric_yaml_find(parent, section);
    if (!parent || parent->kind != FABRIC_YAML_MAPPING) return NULL;
    const struct fabric_yaml_node *node = parent->child;
    while (node && !fabric_unit_match(field, node->key, &unit)) node = node->next;
    return node;
}

enum fabric_kind fabric_kind_of(const struct fabric_yaml *yaml, const char *section,
                                const char *field)
{
    const struct fabric_yaml_node *word = fabric_kind_word(yaml, section, field);

    if (!word) return FABRIC_KIND_UNSAID;
    const enum fabric_kind kind = fabric_kind_read(word->comment);
    if (kind != FABRIC_KIND_UNSAID || section[0] == '\0') return kind;
    return fabric_kind_read(fabric_yaml_find(yaml->root, section)->comment);
}
