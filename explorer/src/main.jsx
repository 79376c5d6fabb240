import { render } from "preact";
import { App } from "./app.jsx";
import { readRecordings } from "./recordings.js";

const root = document.getElementById("explorer");
root.replaceChildren();
render(<App recordings={readRecordings()} />, root);
