/* sim/plan_notes.h - the notes of a plan under way, for sim/plan.c alone.
 *
 * A setting that was changed and cannot matter would pass for one that does no harm. */
#ifndef SIM_PLAN_NOTES_H
#define SIM_PLAN_NOTES_H

#include "sim/plan.h"

/* Add a note; there must be room for one. */
__attribute__((format(printf, 2, 3))) void plan_note(struct sim_plan *plan, const char *format,
                                                     ...);
/* Options that do nothing with the others as they are (from_trace: routing is a trace's); nothing
 * is said where room is short. */
void plan_note_idle(struct sim_plan *plan, bool from_trace);
/* Options about the network, and what the machine's file says of it. The plan is whole but for its
 * notes. */
void plan_note_network(struct sim_plan *plan);

#endif
