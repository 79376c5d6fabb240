// The views, in the order of their tabs. A view is an object with
//   id, label           in the URL fragment, and on its tab
//   accepts(record)     whether it shows this record; a view without it shows the example as a whole
//   available(example)  whether it has anything to show of this example
//   arrays(record, example)  descriptions of the arrays that it needs, {name: description}
//   joint               whether one component shows both runs, as {contexts}, and only where there are two
//   Component           gets {recording, example, record, arrays, place, state, update, announce}
//   values(context)     what its JSON export holds; context has the same but place and announce
//   svg(context)        the root element of its SVG export; without it, what is on the page is converted
import { arcs } from "./arcs.jsx";
import { beamSearch } from "./beam-search.jsx";
import { differences } from "./differences.jsx";
import { heatMap } from "./heat-map.jsx";
import { receptiveField } from "./receptive-field.jsx";
import { stack } from "./stack.jsx";
import { surprisal } from "./surprisal.jsx";
import { tokens } from "./tokens.jsx";

export const VIEWS = [heatMap, tokens, arcs, stack, receptiveField, surprisal, beamSearch, differences];
