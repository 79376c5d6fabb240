import { render } from "preact";
import { App } from "./app.jsx";
import { Live } from "./live.jsx";
import { readRecordings } from "./recordings.js";

const root = document.getElementById("explorer");
const live = document.getElementById("live");
const recordings = readRecordings();
root.replaceChildren();
render(live ? <Live first={recordings[0]} live={JSON.parse(live.textContent)} /> : <App recordings={recordings} />, root);
