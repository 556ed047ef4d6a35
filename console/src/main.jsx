import { render } from "preact";
import { App } from "./app.jsx";
import { applyTheme } from "./theme.js";
import "uplot/dist/uPlot.min.css";
import "./style.css";

applyTheme();
const root = document.createElement("div");
root.id = "console";
document.body.append(root);
render(<App />, root);
