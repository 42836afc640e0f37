/* fabric/attention.c - the table of attention times: reading and interpolating. */
#include "fabric/attention.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/units.h"

__extension__ typedef __int128 i128;

/* A list of decimals in a unit, each above 0. Returns how many, or -1 with err. */
static int read_list(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                     uint64_t scale, uint64_t *out, char *err, size_t err_len)
{
    const struct fabric_unit unit = {scale, 1};
    int count = 0;
    if (node->kind != FABRIC_YAML_LIST)
        return fabric_yaml_refuse(yaml, node, "must be a list of numbers", err, err_len);
    for (const struct fabric_yaml_node *item = node->child; item; item = item->next) {
        if (count == FABRIC_ATTENTION_MAX)
            return fabric_yaml_refuse(yaml, node, "at most 16 numbers", err, err_len);
        if (!item->text ||
            fabric_decimal_parse(item->text, unit, &out[count]) != FABRIC_DECIMAL_OK ||
            out[count] == 0 || out[count] > UINT64_C(1000000000000))
            return fabric_yaml_refuse(yaml, node, "numbers above 0, at most a second", err,
                                      err_len);
        count++;
    }
    return count;
}

static int read_row(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                    struct fabric_attention *table, char *err, size_t err_len)
{
    char *end;
    assert(node->key != NULL && table->columns <= FABRIC_ATTENTION_MAX);
    const unsigned long long requests = strtoull(node->key + strlen("requests_"), &end, 10);
    if (strcmp(end, "_us") != 0 || requests == 0 || requests > 1000000)
        return fabric_yaml_refuse(yaml, node, "must be requests_N_us", err, err_len);
    if (table->rows == FABRIC_ATTENTION_MAX ||
        (table->rows > 0 && requests <= table->requests[table->rows - 1]))
        return fabric_yaml_refuse(yaml, node, "rows ascend, at most 16", err, err_len);
    const int count = read_list(yaml, node, 1000000, table->ps[table->rows], err, err_len);
    if (count < 0) return -1;
    if (count < 1 || (uint32_t)count > table->columns)
        return fabric_yaml_refuse(yaml, node, "one time for each of tokens, which stands before",
                                  err, err_len);
    table->requests[table->rows++] = requests;
    return 0;
}

/* Which models there are is not known here; a path would match none of their names. */
static int read_model(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                      struct fabric_attention *table, char *err, size_t err_len)
{
    if (fabric_yaml_text(yaml, node, table->model, sizeof table->model, err, err_len) != 0)
        return -1;
    if (!fabric_yaml_is_path(table->model)) return 0;
    return fabric_yaml_refuse(yaml, node, "must be a model's name, without folder and .yaml", err,
                              err_len);
}

int fabric_attention_read(const struct fabric_yaml *yaml, const struct fabric_yaml_node *section,
                          struct fabric_attention *attention, char *err, size_t err_len)
{
    struct fabric_attention made = {.rows = 0};
    if (section->kind != FABRIC_YAML_MAPPING)
        return fabric_yaml_refuse(yaml, section, "must hold model, tokens, requests_N_us", err,
                                  err_len);
    for (const struct fabric_yaml_node *node = section->child; node; node = node->next) {
        int result = 0;
        if (strcmp(node->key, "model") == 0) {
            result = read_model(yaml, node, &made, err, err_len);
        } else if (strcmp(node->key, "source") == 0) {
            result = fabric_yaml_text(yaml, node, made.source, sizeof made.source, err, err_len);
        } else if (strcmp(node->key, "tokens") == 0) {
            result = read_list(yaml, node, 1, made.tokens, err, err_len);
            made.columns = result < 0 ? 0 : (uint32_t)result;
        } else if (strncmp(node->key, "requests_", strlen("requests_")) == 0) {
            result = read_row(yaml, node, &made, err, err_len);
        } else {
            result = fabric_yaml_refuse(yaml, node, "unknown field", err, err_len);
        }
        if (result < 0) return -1;
    }
    for (uint32_t c = 1; c < made.columns; c++)
        if (made.tokens[c] <= made.tokens[c - 1])
            return fabric_yaml_refuse(yaml, section, "tokens ascend", err, err_len);
    if (made.rows == 0 || made.model[0] == '\0')
        return fabric_yaml_refuse(yaml, section, "must hold model, tokens, requests_N_us", err,
                                  err_len);
    *attention = made;
    return 0;
}

/* The interval of points[count] that holds value: *low and *low + 1, or twice the same point. */
static bool find(const uint64_t *points, uint32_t count, uint64_t value, uint32_t *low,
                 uint32_t *high)
{
    assert(count > 0 && count <= FABRIC_ATTENTION_MAX);
    if (value < points[0] || value > points[count - 1]) return false;
    uint32_t i = 0;
    while (points[i] < value) i++;
    assert(i < count);
    *high = i;
    *low = points[i] == value ? i : i - 1;
    return true;
}

/* Between y0 at x0 and y1 at x1, to nearest below. */
static uint64_t between(uint64_t x, uint64_t x0, uint64_t x1, uint64_t y0, uint64_t y1)
{
    assert(x >= x0 && x <= x1);
    if (x0 == x1) return y0;
    const i128 rise = ((i128)y1 - (i128)y0) * (i128)(x - x0) / (i128)(x1 - x0);
    return (uint64_t)((i128)y0 + rise);
}

bool fabric_attention_around(const struct fabric_attention *attention, uint64_t requests,
                             uint64_t tokens, struct fabric_attention_box *box)
{
    if (attention->rows == 0) return false;
    if (!find(attention->requests, attention->rows, requests, &box->row[0], &box->row[1]))
        return false;
    if (!find(attention->tokens, attention->columns, tokens, &box->column[0], &box->column[1]))
        return false;
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++)
            if (attention->ps[box->row[r]][box->column[c]] == 0) return false;
    return true;
}

uint64_t fabric_attention_between(const struct fabric_attention *attention,
                                  const struct fabric_attention_box *box, uint64_t requests,
                                  uint64_t tokens, uint64_t value[2][2])
{
    uint64_t edge[2];
    assert(box->row[1] < attention->rows && box->column[1] < attention->columns);
    for (int r = 0; r < 2; r++)
        edge[r] = between(tokens, attention->tokens[box->column[0]],
                          attention->tokens[box->column[1]], value[r][0], value[r][1]);
    return between(requests, attention->requests[box->row[0]], attention->requests[box->row[1]],
                   edge[0], edge[1]);
}

bool fabric_attention_at(const struct fabric_attention *attention, uint64_t requests,
                         uint64_t tokens, uint64_t *ps)
{
    struct fabric_attention_box box;
    uint64_t value[2][2];
    if (!fabric_attention_around(attention, requests, tokens, &box)) return false;
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) value[r][c] = attention->ps[box.row[r]][box.column[c]];
    *ps = fabric_attention_between(attention, &box, requests, tokens, value);
    return true;
}
