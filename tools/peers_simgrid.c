/* tools/peers_simgrid.c - the all-to-all of sim/all_to_all.h on SimGrid, for comparison.
 *
 * usage: peers_simgrid HOSTS MESSAGES BYTES WINDOW
 *
 * Host i sends message p to (i + 1 + p mod (HOSTS - 1)) mod HOSTS, WINDOW of them at a time over
 * its port of 400 Gb/s; a hop of half a microsecond either side of the switch. SimGrid's model is
 * of flows: messages under way share the ports (max-min fairness), packets do not exist. Its
 * factors for TCP are off, so that a message alone takes bytes / rate + 2 hops.
 *
 * Prints microseconds simulated, messages, seconds of CPU. Built by tools/bench_peers.sh alone. */
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS_MAX = 1024, NAME_BYTES = 32 };

static long hosts, messages, bytes, window;
static sg_mailbox_t mailboxes[HOSTS_MAX];

static void fail(const char *what)
{
    fprintf(stderr, "peers_simgrid: %s\n", what);
    exit(3);
}

static void host_name(long host, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "h%ld", host);
}

/* argv[1]: the host's number. */
static void sender(int argc, char **argv)
{
    const long self = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    sg_comm_t *under_way = (sg_comm_t *)calloc((size_t)window, sizeof *under_way);
    if (!under_way) fail("out of memory");
    for (long p = 0; p < messages; p++) {
        const long to = (self + 1 + p % (hosts - 1)) % hosts;
        if (p >= window) sg_comm_wait(under_way[p % window]);
        under_way[p % window] = sg_mailbox_put_async(mailboxes[to], &hosts, bytes);
    }
    for (long p = messages > window ? messages - window : 0; p < messages; p++)
        sg_comm_wait(under_way[p % window]);
    free(under_way);
}

/* Its mailbox takes messages in before they are asked for. */
static void receiver(int argc, char **argv)
{
    char name[NAME_BYTES];
    const long self = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    host_name(self, name);
    sg_mailbox_set_receiver(name);
    for (long p = 0; p < messages; p++) (void)sg_mailbox_get(mailboxes[self]);
}

static void start(const char *name, xbt_main_func_t code, long host)
{
    char number[NAME_BYTES];
    const char *argv[] = {name, number, NULL};
    char at[NAME_BYTES];
    snprintf(number, sizeof number, "%ld", host);
    host_name(host, at);
    (void)sg_actor_create(name, sg_host_by_name(at), code, 2, (char *const *)(uintptr_t)argv);
}

static void load_platform(void)
{
    char path[] = "/tmp/peers_simgrid.XXXXXX.xml";
    const int file = mkstemps(path, 4);
    if (file < 0) fail("no temporary file");
    dprintf(file,
            "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM "
            "\"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n"
            "<cluster id=\"c\" prefix=\"h\" suffix=\"\" radical=\"0-%ld\" speed=\"1Gf\" "
            "bw=\"50GBps\" lat=\"0.5us\" sharing_policy=\"SPLITDUPLEX\"/>\n</platform>\n",
            hosts - 1);
    close(file);
    simgrid_load_platform(path);
    unlink(path);
}

int main(int argc, char **argv)
{
    char program[] = "peers_simgrid", model[] = "--cfg=network/model:CM02",
         gamma[] = "--cfg=network/TCP-gamma:0", cross[] = "--cfg=network/crosstraffic:0",
         quiet[] = "--log=root.thresh:warning";
    char *options[] = {program, model, gamma, cross, quiet, NULL};
    int option_count = 5;
    struct timespec from, to;

    if (argc != 5) fail("usage: peers_simgrid HOSTS MESSAGES BYTES WINDOW");
    hosts = strtol(argv[1], NULL, 10);
    messages = strtol(argv[2], NULL, 10);
    bytes = strtol(argv[3], NULL, 10);
    window = strtol(argv[4], NULL, 10);
    if (hosts < 2 || hosts > HOSTS_MAX || messages < 1 || bytes < 1 || window < 1)
        fail("every number is at least 1, hosts are 2 to 1024");
    simgrid_init(&option_count, options);
    load_platform();
    for (long host = 0; host < hosts; host++) {
        char name[NAME_BYTES];
        host_name(host, name);
        mailboxes[host] = sg_mailbox_by_name(name);
        start("receiver", receiver, host);
    }
    for (long host = 0; host < hosts; host++) start("sender", sender, host);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    simgrid_run();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    printf("%.3f %ld %.3f\n", simgrid_get_clock() * 1e6, hosts * messages,
           (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9);
    return 0;
}
