// Draws the gutter marks: `node client/media/gutter.mjs`. Shape tells the state, colour only repeats it.
import { writeFileSync } from "node:fs";

const GREEN = "#3fa45b", BLUE = "#3b82c4", RED = "#d64545", AMBER = "#b98900", GREY = "#8a8a8a";
const stroke = (colour, path, extra = "") =>
  `<path d="${path}" stroke="${colour}" stroke-width="1.8" fill="none" stroke-linecap="round" stroke-linejoin="round"${extra}/>`;
const tick = "M3.5 8.5 L6.8 11.8 L12.5 4.8";

const MARKS = {
  queued: `<circle cx="4" cy="8" r="1.3" fill="${GREY}"/><circle cx="8" cy="8" r="1.3" fill="${GREY}"/><circle cx="12" cy="8" r="1.3" fill="${GREY}"/>`,
  tracing: stroke(GREY, "M3 8 A5 5 0 1 1 8 13") + `<circle cx="8" cy="8" r="1.5" fill="${GREY}"/>`,
  proving: stroke(BLUE, "M3 8 A5 5 0 1 1 8 13") + `<circle cx="8" cy="8" r="1.5" fill="${BLUE}"/>`,
  proved: stroke(GREEN, tick),
  assumed: stroke(BLUE, tick, ' stroke-dasharray="2.4 2.6"'),
  unknown: stroke(AMBER, "M5.2 5.6 A2.8 2.8 0 1 1 9 8.2 Q8 8.7 8 10") + `<circle cx="8" cy="12.8" r="1.2" fill="${AMBER}"/>`,
  broken: stroke(RED, "M4 4 L12 12 M12 4 L4 12"),
  error: stroke(RED, "M8 3 V9") + `<circle cx="8" cy="12.6" r="1.2" fill="${RED}"/>`,
};

const picture = (body, opacity = 1) => `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16"><g opacity="${opacity}">${body}</g></svg>\n`;

for (const [name, body] of Object.entries(MARKS)) {
  const file = new URL(`gutter/${name}.svg`, import.meta.url);
  writeFileSync(file, picture(body));
  if (!["queued", "tracing", "proving"].includes(name)) {
    writeFileSync(new URL(`gutter/stale${name}.svg`, import.meta.url), picture(body, 0.35));
  }
}
